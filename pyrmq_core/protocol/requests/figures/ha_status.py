"""GET_BROKER_HA_STATUS (907), of 5.0 or later: how far a master's slaves have copied its log.

Source: remoting/protocol/body/HARuntimeInfo.java, 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.members import flag_member, from_members, member, text_member, to_members


@dataclass(frozen=True, slots=True)
class GetHaStatus(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_HA_STATUS


@dataclass(frozen=True, slots=True)
class HaConnection:
    """One slave that is connected to a master. `diff` is the number of commit-log bytes that it has yet to copy."""

    address: str = member("addr", "", text_member)
    slave_ack_offset: int = member("slaveAckOffset", 0, long_member)
    diff: int = member("diff", 0, long_member)
    in_sync: bool = member("inSync", False, flag_member)
    transferred_bytes_per_second: int = member("transferredByteInSecond", 0, long_member)
    transfer_from_where: int = member("transferFromWhere", 0, long_member)


@dataclass(frozen=True, slots=True)
class HaClient:
    """A slave's connection to its master. A timestamp of 0 means that nothing was read or written yet."""

    master_address: str = member("masterAddr", "", text_member)
    max_offset: int = member("maxOffset", 0, long_member)
    master_flush_offset: int = member("masterFlushOffset", 0, long_member)
    transferred_bytes_per_second: int = member("transferredByteInSecond", 0, long_member)
    last_read_timestamp_ms: int = member("lastReadTimestamp", 0, long_member)
    last_write_timestamp_ms: int = member("lastWriteTimestamp", 0, long_member)


def _connections(rows: Iterable[object]) -> tuple[HaConnection, ...]:
    return tuple(from_members(HaConnection, row) for row in rows)


def _client(members: object) -> HaClient:
    return from_members(HaClient, members)


@dataclass(frozen=True, slots=True)
class HaStatus:
    """The answer to `GetHaStatus`. A slave sets `client`, its connection to its master. A master leaves it None."""

    master: bool = member("master", False, flag_member)
    master_commit_log_max_offset: int = member("masterCommitLogMaxOffset", 0, long_member)
    in_sync_slave_nums: int = member("inSyncSlaveNums", 0, int_member)
    connections: tuple[HaConnection, ...] = member("haConnectionInfo", (), _connections)
    client: HaClient | None = member("haClientRuntimeInfo", None, _client)  # noqa: RUF009 - a field

    def to_command(self) -> Command:
        members = to_members(self)
        members["haConnectionInfo"] = [to_members(connection) for connection in self.connections]
        if self.client is not None:
            members["haClientRuntimeInfo"] = to_members(self.client)
        return success(body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        try:
            return from_members(cls, load_object(command.body, "state of replication"))
        except (TypeError, ValueError) as error:
            raise BodyError(f"state of replication: {error}") from error
