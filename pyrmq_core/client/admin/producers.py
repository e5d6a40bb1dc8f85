"""`Admin.producers`: the producers that are connected to brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyrmq_core.client.admin.servers import AdminFamily, Gathered, Server
from pyrmq_core.errors import ResponseError, RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.versions import version_name
from pyrmq_core.protocol.messages.names import check_group
from pyrmq_core.protocol.messages.namespaces import is_reachable, without_namespace
from pyrmq_core.protocol.requests.groups.connections import (
    AllProducers,
    GetAllProducers,
    GetProducerConnections,
    ProducerConnections,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ConnectedProducer:
    """One client of a producer group. `seen` is the time of its last heartbeat by the broker's clock, or None.

    `brokers` are the names of the brokers to which it is connected.
    """

    group: str
    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]
    seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProducerList:
    """Producers by group and client, and the errors of brokers that did not answer."""

    producers: tuple[ConnectedProducer, ...]
    failures: Mapping[str, RocketMQError]


class Producers(AdminFamily):
    """Methods that list connected producers. A producer is connected to the brokers to which it has sent messages."""

    async def list(self) -> ProducerList:
        """Returns the producers of all groups. With a namespace, only those of its groups."""

        async def ask(server: Server) -> list[ConnectedProducer]:
            answer = AllProducers.from_command(await self._servers.ask(server, GetAllProducers().to_command()))
            return [
                ConnectedProducer(
                    self._own(group),
                    member.client_id,
                    member.address.lstrip("/"),
                    member.language,
                    version_name(member.version),
                    (server.name,),
                    EPOCH + timedelta(milliseconds=member.last_update_ms) if member.last_update_ms > 0 else None,
                )
                for group, members in answer.groups.items()
                if is_reachable(group, self._servers.namespace)
                for member in members
            ]

        servers = await self._servers.brokers()
        return _joined(await self._servers.gather(servers.values(), ask))

    async def members(self, group: str) -> ProducerList:
        """Returns the producers of one group. A group without producers is no error."""
        check_group(group)
        request = GetProducerConnections(self._servers.on_wire(group)).to_command()

        async def ask(server: Server) -> list[ConnectedProducer]:
            try:
                answer = await self._servers.ask(server, request, f"producer group {group}")
            except ResponseError as error:
                if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                    return []
                raise
            return [
                ConnectedProducer(
                    group,
                    connection.client_id,
                    connection.address,
                    connection.language,
                    version_name(connection.version),
                    (server.name,),
                )
                for connection in ProducerConnections.from_command(answer).connections
            ]

        servers = await self._servers.brokers()
        return _joined(await self._servers.gather(servers.values(), ask))

    def _own(self, group: str) -> str:
        return without_namespace(group, self._servers.namespace)


def _joined(gathered: Gathered[list[ConnectedProducer]]) -> ProducerList:
    rows: dict[tuple[str, str], ConnectedProducer] = {}
    for answers in gathered.answers.values():
        for producer in answers:
            first = rows.setdefault((producer.group, producer.client_id), producer)
            if first is not producer:
                seen = max((when for when in (first.seen, producer.seen) if when is not None), default=None)
                brokers = tuple(sorted({*first.brokers, *producer.brokers}))
                rows[producer.group, producer.client_id] = ConnectedProducer(
                    first.group, first.client_id, first.address, first.language, first.version, brokers, seen
                )
    return ProducerList(tuple(rows[key] for key in sorted(rows)), gathered.failures)
