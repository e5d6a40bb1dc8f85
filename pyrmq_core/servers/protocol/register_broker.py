"""REGISTER_BROKER (103), UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322): a broker registers its topics.

Plain and compressed bodies of all versions are supported. The body is decoded only by `RegisterBroker.body`, since a
NameServer need not decode a body that it received before. Sources:
remoting/protocol/header/namesrv/RegisterBrokerRequestHeader.java, UnRegisterBrokerRequestHeader.java,
QueryDataVersionRequestHeader.java, broker/out/BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError, HeaderError, InvalidArgument
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import VERSION, Command, success
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.names import check_address
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.protocol.registration import RegistrationBody, decode_registration, registration_crc


@dataclass(frozen=True, slots=True)
class RegistrationHeader:
    """The header of a registration. A `body_crc32` of 0 is not checked, a `heartbeat_timeout_ms` of None means 120 s.

    5.x always sends `enable_acting_master`, 4.x never.
    """

    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str = wire("brokerName")
    broker_id: int = wire("brokerId")
    ha_server_addr: str | None = wire("haServerAddr", None)
    compressed: bool = wire("compressed", False)
    body_crc32: int = wire_int("bodyCrc32", 0)
    heartbeat_timeout_ms: int | None = wire("heartbeatTimeoutMillis", None)
    enable_acting_master: bool | None = wire("enableActingMaster", None)
    zone_name: str | None = wire("__ZONE_NAME", None)


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker's registration of all its topics, or of changed ones.

    A topic that is left out stays registered, unless the NameServer's deleteTopicWithBrokerRegistration is true.
    """

    CODE: ClassVar[RequestCode] = RequestCode.REGISTER_BROKER
    header: RegistrationHeader
    raw_body: bytes | memoryview = b""
    version: int = VERSION

    @classmethod
    def of(cls, header: RegistrationHeader, body: RegistrationBody) -> Self:
        raw = body.to_compressed(VERSION) if header.compressed else body.to_json()
        return cls(replace(header, body_crc32=registration_crc(raw)), raw)

    def body(self) -> RegistrationBody:
        """Returns the decoded body. Raises `BodyError` if it is malformed."""
        return decode_registration(self.raw_body, version=self.version, compressed=self.header.compressed)

    def check_crc(self) -> None:
        """Raises `BodyError` if the body does not have the CRC in the header. A CRC of 0 is not checked."""
        declared = self.header.body_crc32
        if declared != 0 and declared != registration_crc(self.raw_body):
            raise BodyError("crc32 not match")

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self.header), self.raw_body, version=self.version)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        header = decode_fields(RegistrationHeader, command.ext, "REGISTER_BROKER (103)")
        try:
            check_address(header.broker_addr)
        except InvalidArgument as error:
            raise HeaderError(f"REGISTER_BROKER (103): field brokerAddr: {error}") from error
        return cls(header, command.body, command.version)


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """The answer to request 103: for a slave, its master's addresses. `order_topic_table` has queues by order topic."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    order_topic_table: Mapping[str, str] | None = None

    def to_command(self) -> Command:
        addresses = {"haServerAddr": self.ha_server_addr, "masterAddr": self.master_addr}
        table = self.order_topic_table
        return success(
            {name: address for name, address in addresses.items() if address is not None},
            b"" if table is None else dumps({"table": dict(table)}),
        )

    @classmethod
    def from_command(cls, command: Command) -> Self:
        table = load_object(command.body, "order configuration").get("table") or {} if command.body else None
        if not isinstance(table, dict | None):
            raise BodyError("order configuration: table is not an object")
        return cls(
            ha_server_addr=command.ext.get("haServerAddr"),
            master_addr=command.ext.get("masterAddr"),
            order_topic_table=None if table is None else {topic: str(conf) for topic, conf in table.items()},
        )


@dataclass(frozen=True, slots=True)
class UnregisterBroker(HeaderRequest):
    """A request by which a broker unregisters. The answer has no fields."""

    CODE: ClassVar[RequestCode] = RequestCode.UNREGISTER_BROKER
    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str = wire("brokerName")
    broker_id: int = wire("brokerId")


@dataclass(frozen=True, slots=True)
class QueryDataVersion:
    """A query whether a NameServer has this version of the broker's topics. It is also a heartbeat of the broker."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_DATA_VERSION
    cluster_name: str
    broker_addr: str
    data_version: DataVersion
    broker_name: str | None = None
    broker_id: int | None = None

    def to_command(self) -> Command:
        header = _VersionHeader(self.cluster_name, self.broker_addr, self.broker_name, self.broker_id)
        return Command(self.CODE, encode_fields(header), self.data_version.to_json())

    @classmethod
    def from_command(cls, command: Command) -> Self:
        header = decode_fields(_VersionHeader, command.ext, "QUERY_DATA_VERSION (322)")
        version = DataVersion.from_json(command.body) if command.body else DataVersion()
        return cls(header.cluster_name, header.broker_addr, version, header.broker_name, header.broker_id)


@dataclass(frozen=True, slots=True)
class _VersionHeader:
    cluster_name: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str | None = wire("brokerName", None)
    broker_id: int | None = wire("brokerId", None)


@dataclass(frozen=True, slots=True)
class KnownDataVersion:
    """The answer to `QueryDataVersion`. For an unknown broker, `data_version` is None and `changed` is True."""

    changed: bool
    data_version: DataVersion | None = None

    def to_command(self) -> Command:
        body = b"" if self.data_version is None else self.data_version.to_json()
        return success({"changed": "true" if self.changed else "false"}, body)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        changed = command.ext.get("changed", "true").lower() == "true"
        return cls(changed, DataVersion.from_json(command.body) if command.body else None)
