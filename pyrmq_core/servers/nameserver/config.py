"""The settings of a NameServer under RocketMQ's names: their table, the properties file, changes at run time.

Unlike Apache's, this NameServer listens on 127.0.0.1 by default, and refuses invalid values. It searches for silent
brokers every 10 s, as 4.x does. The default names of its files contain its port. Sources:
common/namesrv/NamesrvConfig.java, remoting/netty/NettyServerConfig.java, 5.4.0.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final, Self

from pyrmq_core.errors import HeaderError, InvalidArgument
from pyrmq_core.network import ServerBounds
from pyrmq_core.network.server import MAX_CONNECTIONS, MAX_RECEIVED_BYTES, MAX_WAITING_BYTES
from pyrmq_core.network.tls_settings import NAMES as TLS_NAMES
from pyrmq_core.network.tls_settings import TlsSettings
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire
from pyrmq_core.protocol.framing.frame import SERVER_HEADER_BYTES
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.servers.access.settings import NAMES as ACCESS_NAMES
from pyrmq_core.servers.access.settings import AccessSettings, without_plain_acl
from pyrmq_core.servers.exporter.start import DEFAULT_HOST, PROM, check_exporter
from pyrmq_core.servers.nameserver.kvconfig import MAX_BYTES
from pyrmq_core.servers.nameserver.tables import TableRules

# Settings of Apache's NameServer that are accepted and shown, but have no effect, with their defaults.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "defaultThreadPoolNums": "16",
    "defaultThreadPoolQueueCapacity": "10000",
    "enableShutdownGracefully": "false",
    "productEnvName": "center",
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverNettyWorkerGroupEnable": "true",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "shutdownWaitTimeSeconds": "30",
    "unRegisterBrokerQueueCapacity": "3000",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}
# Features that do not exist here, by the setting that would enable them. The setting is refused, since a server without
# the feature would answer differently.
NOT_BUILT: Final[Mapping[str, str]] = {
    "clusterTest": "asking another environment's NameServer for routes",
    "enableControllerInNamesrv": "a controller inside the NameServer",
}
# Settings that are never changed over the network, even if `configBlackList` lacks them: paths, addresses, with which
# the next start might fail, and the limits that protect the server from hostile clients.
ALWAYS_BLACK: Final = frozenset(
    {
        "bindAddress",
        "configBlackList",
        "configStorePath",
        "kvConfigMaxBytes",
        "kvConfigPath",
        "listenPort",
        "maxRegisteredBrokers",
        "maxRegisteredTopicBytes",
        "metricsExporterType",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "serverMaxConnections",
        "serverMaxHeaderBytes",
        "serverMaxReceivedBytes",
        "serverMaxWaitingBytes",
        *TLS_NAMES,
        *ACCESS_NAMES,
    }
)
BOUNDS: Final = (
    "kv_config_max_bytes",
    "max_registered_brokers",
    "max_registered_topic_bytes",
    "server_max_connections",
    "server_max_received_bytes",
    "server_max_waiting_bytes",
    "server_max_header_bytes",
)
# The most characters of a setting's value, more than any path has. Each change writes all values.
MAX_VALUE_CHARS: Final = 4096
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """All settings of a NameServer. `others` are accepted settings without effect. An empty path means the default."""

    bind_address: str = wire("bindAddress", "127.0.0.1")
    listen_port: int = wire("listenPort", 9876)
    kv_config_path: str = wire("kvConfigPath", "")
    kv_config_max_bytes: int = wire("kvConfigMaxBytes", MAX_BYTES)
    config_store_path: str = wire("configStorePath", "")
    config_black_list: str = wire("configBlackList", "configBlackList;configStorePath;kvConfigPath")
    order_message_enable: bool = wire("orderMessageEnable", False)
    return_order_topic_config_to_broker: bool = wire("returnOrderTopicConfigToBroker", True)
    enable_all_topic_list: bool = wire("enableAllTopicList", True)
    enable_topic_list: bool = wire("enableTopicList", True)
    scan_not_active_broker_interval_ms: int = wire("scanNotActiveBrokerInterval", 10_000)
    support_acting_master: bool = wire("supportActingMaster", False)
    notify_min_broker_id_changed: bool = wire("notifyMinBrokerIdChanged", False)
    delete_topic_with_broker_registration: bool = wire("deleteTopicWithBrokerRegistration", False)
    accept_first_registration_of_one_topic: bool = wire("acceptFirstRegistrationOfOneTopic", True)
    need_wait_for_service: bool = wire("needWaitForService", False)
    wait_seconds_for_service: int = wire("waitSecondsForService", 45)
    server_channel_max_idle_time_seconds: int = wire("serverChannelMaxIdleTimeSeconds", 120)
    server_max_connections: int = wire("serverMaxConnections", MAX_CONNECTIONS)
    server_max_received_bytes: int = wire("serverMaxReceivedBytes", MAX_RECEIVED_BYTES)
    server_max_waiting_bytes: int = wire("serverMaxWaitingBytes", MAX_WAITING_BYTES)
    server_max_header_bytes: int = wire("serverMaxHeaderBytes", SERVER_HEADER_BYTES)
    max_registered_brokers: int = wire("maxRegisteredBrokers", 10_000)
    max_registered_topic_bytes: int = wire("maxRegisteredTopicBytes", 1 << 30)
    # The names of RocketMQ's broker settings, since its NameServer has no metrics.
    metrics_exporter_type: str = wire("metricsExporterType", "DISABLE")
    metrics_prom_exporter_port: int = wire("metricsPromExporterPort", 5557)
    metrics_prom_exporter_host: str = wire("metricsPromExporterHost", DEFAULT_HOST)
    others: Mapping[str, str] = field(default_factory=dict)
    tls: TlsSettings = field(default_factory=TlsSettings)
    access: AccessSettings = field(default_factory=AccessSettings)

    @property
    def rules(self) -> TableRules:
        """The settings that the route tables use."""
        return TableRules(
            delete_topic_with_broker_registration=self.delete_topic_with_broker_registration,
            support_acting_master=self.support_acting_master,
            accept_first_registration_of_one_topic=self.accept_first_registration_of_one_topic,
            max_brokers=self.max_registered_brokers,
            max_topic_bytes=self.max_registered_topic_bytes,
        )

    @property
    def bounds(self) -> ServerBounds:
        """The limits on connections and memory."""
        return ServerBounds(
            self.server_max_connections,
            self.server_max_received_bytes,
            self.server_max_waiting_bytes,
            self.server_max_header_bytes,
        )

    @property
    def exports_metrics(self) -> bool:
        """True if the metrics are served for Prometheus."""
        return self.metrics_exporter_type.upper() == PROM

    @property
    def kv_config_file(self) -> Path | None:
        """The file of the KV configuration, or None (memory only) if the port is 0 and `kvConfigPath` is empty."""
        return self._file(self.kv_config_path, f"kvConfig-{self.listen_port}.json")

    @property
    def config_store_file(self) -> Path | None:
        """The file for changed settings, or None (memory only) if the port is 0 and `configStorePath` is empty."""
        return self._file(self.config_store_path, f"namesrv-{self.listen_port}.properties")

    @property
    def users_folder(self) -> Path | None:
        """The default folder of users and policies (see `authConfigPath`), or None (memory only) if the port is 0."""
        return self._file("", f"auth-{self.listen_port}")

    @property
    def black_list(self) -> frozenset[str]:
        """The names of settings that cannot be changed over the network."""
        return ALWAYS_BLACK | {name for name in self.config_black_list.split(";") if name}

    def to_settings(self, *, secrets: bool = False) -> dict[str, str]:
        """Returns every setting with its effective value, by RocketMQ's name. Passwords are hidden unless `secrets`."""
        settings = {**WITHOUT_EFFECT, **dict.fromkeys(NOT_BUILT, "false"), **self.others, **encode_fields(self)}
        settings.update(self.tls.to_settings(secrets=secrets))
        settings.update(self.access.to_settings(secrets=secrets))
        settings["kvConfigPath"] = str(self.kv_config_file or "")
        settings["configStorePath"] = str(self.config_store_file or "")
        return dict(sorted(settings.items()))

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """Returns a copy with these settings, but ignores unknown names. Raises `InvalidArgument` for a bad value."""
        for name, what in NOT_BUILT.items():
            if settings.get(name, "false").strip().lower() != "false":
                raise InvalidArgument(f"{name}={settings[name]}: {what} is not supported; leave it false")
        for name, value in settings.items():
            if len(value) > MAX_VALUE_CHARS or _CONTROL.search(value):
                raise InvalidArgument(
                    f"{name}={value[:80]!r}: {MAX_VALUE_CHARS} characters at most are wanted, none a control character"
                )
        own = {name: value.strip() for name, value in settings.items() if name in _TYPES}
        for name, value in own.items():
            if _TYPES[name] == "bool" and value.lower() not in ("true", "false"):
                raise InvalidArgument(f"{name}={value}: true or false is wanted")
        try:
            changed = decode_fields(type(self), {**encode_fields(self), **own}, "settings")
        except HeaderError as error:
            raise InvalidArgument(f"{error}; correct the setting") from error
        others = {name: value for name, value in settings.items() if name in WITHOUT_EFFECT}
        tls, access = self.tls.with_settings(settings), without_plain_acl(self.access.with_settings(settings))
        return replace(changed, others={**self.others, **others}, tls=tls, access=access)._checked()

    def _checked(self) -> Self:
        for name in ("listen_port", "metrics_prom_exporter_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise InvalidArgument(f"{_WIRE_NAMES[name]}={getattr(self, name)}: a port is 0 to 65535")
        check_exporter(self.metrics_exporter_type)
        for name in ("scan_not_active_broker_interval_ms", "server_channel_max_idle_time_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{_WIRE_NAMES[name]}={getattr(self, name)}: a time above 0 is wanted")
        for name in BOUNDS:
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{_WIRE_NAMES[name]}={getattr(self, name)}: a number above 0 is wanted")
        return self

    def _file(self, path: str, default: str) -> Path | None:
        if path:
            return Path(path).expanduser()
        return Path.home() / "namesrv" / default if self.listen_port else None


def unknown_settings(settings: Mapping[str, str], most: int | None = None) -> dict[str, str]:
    """Returns the names that are no settings of a NameServer, each with the most similar setting, or an empty text.

    If `most` is given, it returns no more names than that, since the search for a similar setting takes time.
    """
    names = [*_TYPES, *WITHOUT_EFFECT, *NOT_BUILT, *TLS_NAMES, *ACCESS_NAMES]
    listed = frozenset(names)
    unknown = islice((name for name in settings if name not in listed), most)
    return {name: next(iter(difflib.get_close_matches(name, names, 1)), "") for name in unknown}


def load_settings(path: Path) -> dict[str, str]:
    """Reads a properties file. Adds its path as `configStorePath`, so that later changes are written to it.

    Raises `InvalidArgument` if it is unreadable.
    """
    try:
        settings = parse_java_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the settings in {path}: {error}") from error
    return {**settings, "configStorePath": str(path)}


_WIRE_NAMES: Final = {
    row.name: str(row.metadata["wire"]) for row in dataclasses.fields(NameServerConfig) if "wire" in row.metadata
}
_TYPES: Final = {
    str(row.metadata["wire"]): str(row.type) for row in dataclasses.fields(NameServerConfig) if "wire" in row.metadata
}
