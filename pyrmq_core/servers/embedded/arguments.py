"""Checks the arguments of a cluster before anything starts. An invalid one raises `InvalidArgument` with its name."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker import BrokerConfig
from pyrmq_core.servers.broker.settings.broker_config import MASTER_ID, SERVER_NAME, SLAVE, SYNC_MASTER, unknown_names
from pyrmq_core.servers.nameserver import NameServerConfig
from pyrmq_core.servers.nameserver.config import unknown_settings

PORTS_APART: Final = 10
MOST_SLAVES: Final = 9
CLUSTER_NAME: Final = "DefaultCluster"
# Smaller files than by default. They are sparse, but recovery after a crash reads complete files.
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": "600000",
    "mapperFileSizeBatchConsumeQueue": "460000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "1000000",
}
# The size limit of each store, so that a long running cluster does not fill the disk or the memory.
MAX_STORE_BYTES: Final = 2 << 30
# The argument to use in place of each setting that the cluster itself sets.
SET_BY: Final = {
    "brokerName": "brokers",
    "listenPort": "port",
    "namesrvAddr": "nameservers",
    "haListenPort": "slaves",
    "haMasterAddress": "slaves",
}
SET_BY_ID: Final = {"brokerId": "slaves"}
SET_BY_DIRECTORY: Final = {"storePathRootDir": "directory"}
# A NameServer's files, by the setting that has their path. Each NameServer needs its own.
NAMESERVER_FILES: Final = {
    "kvConfigPath": "kvConfig.json",
    "configStorePath": "namesrv.properties",
    "authConfigPath": "auth",
}


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker's name and id in RocketMQ. The id of a master is 0."""

    broker_name: str
    broker_id: int

    def settings(self) -> dict[str, str]:
        role = {} if self.broker_id == MASTER_ID else {"brokerRole": SLAVE, "brokerId": str(self.broker_id)}
        return {"brokerName": self.broker_name, **role}


def server_names(kind: str, servers: int | Sequence[str]) -> tuple[str, ...]:
    """Returns the names `kind-a`, `kind-b`, ... if `servers` is a number, or else the names in `servers`."""
    if isinstance(servers, int):
        names = tuple(f"{kind}-{letter}" for letter in string.ascii_lowercase[: max(servers, 0)])
    else:
        names = () if isinstance(servers, str) else tuple(servers)
    wrong = not names or len(set(names)) < len(names) or not all(map(SERVER_NAME.fullmatch, names))
    if wrong or (isinstance(servers, int) and len(names) != servers):
        raise InvalidArgument(f"{kind}s={servers!r}: a number from 1 to 26, or a list of different names, is wanted")
    return names


def broker_ports(first: int, count: int) -> list[int]:
    """Returns a port for each of `count` brokers: `first`, `first` + 10 and so on. If `first` is 0, all are 0 (free).

    The gaps are for other ports of a broker.
    """
    if type(first) is not int or not 0 <= first <= 65535 or (first and first + PORTS_APART * (count - 1) > 65535):
        raise InvalidArgument(f"broker_port={first!r}: a port is wanted, with room for {count} brokers ten apart, or 0")
    return [first + PORTS_APART * number if first else 0 for number in range(count)]


def broker_places(names: Sequence[str], slaves: int) -> dict[str, BrokerPlace]:
    """Returns all masters and then their slaves, by server name. The first slave of broker-a is named broker-a-1."""
    if type(slaves) is not int or not 0 <= slaves <= MOST_SLAVES:
        raise InvalidArgument(f"slaves={slaves!r}: the number of slaves of each broker is wanted, 0 to {MOST_SLAVES}")
    masters = {name: BrokerPlace(name, MASTER_ID) for name in names}
    ids = range(MASTER_ID + 1, slaves + 1)
    copies = {f"{name}-{broker_id}": BrokerPlace(name, broker_id) for name in names for broker_id in ids}
    if both := masters.keys() & copies.keys():
        raise InvalidArgument(f"brokers={list(names)!r}: {', '.join(sorted(both))} is the name of a slave, too")
    return {**masters, **copies}


def broker_config(settings: Mapping[str, str] | None, *, host: str, slaves: int, sync: bool) -> BrokerConfig:
    checked = _texts("settings", settings, {**SET_BY, **SET_BY_ID, **SET_BY_DIRECTORY})
    _refuse_unknown("settings", unknown_names(checked))
    if checked.get("brokerRole") == SLAVE:
        raise InvalidArgument(f"settings: brokerRole={SLAVE}: masters have slaves; use slaves=")
    if sync and not slaves:
        raise InvalidArgument("sync=True: a send would wait for a slave, and there is none; use slaves=1 or more")
    if sync and checked.get("brokerRole", SYNC_MASTER) != SYNC_MASTER:
        raise InvalidArgument(f"sync=True and settings: brokerRole={checked['brokerRole']}: one of them is wanted")
    waiting = {"brokerRole": SYNC_MASTER, "inSyncReplicas": "2"} if sync else {}
    own = {"brokerClusterName": CLUSTER_NAME, "bindAddress": host, "brokerIP1": host}
    common = {**own, **SMALL_FILES, **waiting, **checked}
    config = BrokerConfig().with_settings(common)
    if "maxStoreBytes" in checked:
        return config
    most = max(MAX_STORE_BYTES, 4 * config.mapped_file_size_commit_log)
    return config.with_settings({"maxStoreBytes": str(most)})


def changed_settings(settings: Mapping[str, str]) -> dict[str, str]:
    checked = _texts("settings", settings, {**SET_BY, **SET_BY_DIRECTORY})
    _refuse_unknown("settings", unknown_names(checked))
    return checked


def checked_nameserver_settings(settings: Mapping[str, str] | None, *, host: str, several: bool) -> dict[str, str]:
    own = {**SET_BY, **dict.fromkeys(NAMESERVER_FILES, "directory")} if several else SET_BY
    checked = _texts("nameserver_settings", settings, own)
    unknown = unknown_settings(checked).items()
    _refuse_unknown(
        "nameserver_settings", [f"{name} (did you mean {near}?)" if near else name for name, near in unknown]
    )
    common = {"bindAddress": host, **checked}
    NameServerConfig().with_settings(common)
    return common


def checked_timeout(timeout: object) -> float:
    """Returns a timeout in seconds unchanged. Raises `InvalidArgument` unless it is a finite number above 0."""
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidArgument(f"timeout={timeout!r}: a number of seconds above 0 is wanted")
    return timeout


def topic_configs(topics: Mapping[str, int | TopicConfig] | None) -> tuple[TopicConfig, ...]:
    """Returns the topics to create. A number is a topic's number of read queues and of write queues."""
    if topics is not None and not isinstance(topics, Mapping):
        raise InvalidArgument(f"topics={topics!r}: a mapping from names to numbers of queues is wanted")
    return tuple([_topic_config(name, wanted) for name, wanted in (topics or {}).items()])


def _topic_config(name: str, wanted: object) -> TopicConfig:
    check_topic(name)
    if isinstance(wanted, TopicConfig) and wanted.topic == name:
        return wanted
    if isinstance(wanted, TopicConfig):
        raise InvalidArgument(f"topics: {name} has the TopicConfig of {wanted.topic}; one name is wanted")
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= MAX_QUEUES_PER_TOPIC:
        raise InvalidArgument(
            f"topics: {name}={wanted!r}; a number of queues from 1 to {MAX_QUEUES_PER_TOPIC} or a TopicConfig is wanted"
        )
    return TopicConfig(name, wanted, wanted)


def _texts(argument: str, settings: Mapping[str, str] | None, own: Mapping[str, str]) -> dict[str, str]:
    for name, value in (settings or {}).items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{argument}: {name}={value!r}; a text is wanted, as in RocketMQ's files")
        if name in own:
            raise InvalidArgument(f"{argument}: {name} is set by the cluster, for each server; use {own[name]}=")
    return dict(settings or {})


def _refuse_unknown(argument: str, names: Sequence[str]) -> None:
    if names:
        raise InvalidArgument(f"{argument}: there is no such setting: {', '.join(names)}")
