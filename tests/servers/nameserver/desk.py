"""A NameServer in memory: a call passes it a request and returns its answer, without a socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Connection, Peer, ask
from pyrmq_core.network.connection.answers import failure_answer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import loads
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.nameserver import NameServerConfig
from pyrmq_core.servers.nameserver.handlers import handle
from pyrmq_core.servers.nameserver.service import NameServer
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody


class RecordedConnection:
    """A connection that keeps the reason of its end."""

    def __init__(self) -> None:
        self.closed_because: list[str] = []

    def close(self, reason: str = "") -> None:
        self.closed_because.append(reason)


def peer(address: str = "127.0.0.1:50000") -> Peer:
    return Peer(cast("Connection", RecordedConnection()), address, "127.0.0.1:9876")


def closed_because(of: Peer) -> list[str]:
    return cast("RecordedConnection", of.connection).closed_because


class Desk:
    """A NameServer with these settings (RocketMQ's names); port 0, so that it writes no file."""

    def __init__(self, **settings: object) -> None:
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()
        }
        self.server = NameServer(NameServerConfig().with_settings({"listenPort": "0", **texts}))
        self.peer = peer()

    async def ask(self, command: Command, of: Peer | None = None) -> Command:
        """Returns the command that the network would send back."""
        whom = of or self.peer
        try:
            answer = await ask(partial(handle, self.server), command, whom)
        except RocketMQError as error:
            answer = failure_answer(command, whom, error)
        assert answer is not None
        return command.answered(answer)

    async def question(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", **more: Any
    ) -> Command:
        return await self.ask(Command(code, ext or {}, body, **more))

    async def register(self, *args: Any, of: Peer | None = None, **more: Any) -> Command:
        return await self.ask(registration(*args, **more).to_command(), of)

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.ask(GetRouteInfo(topic).to_command())
        return TopicRouteData.from_json(answer.body) if answer.code == 0 else None


def registration(
    name: str = "broker-a",
    address: str = "127.0.0.1:10911",
    broker_id: int = 0,
    topics: Sequence[TopicConfig | str] = ("TopicTest", "TBW102"),
    version: DataVersion | int = 1,
    *,
    cluster: str = "DefaultCluster",
    ha: str | None = "127.0.0.1:10912",
    filters: Sequence[str] = (),
    infos: Mapping[str, Mapping[str, Any]] | None = None,
    **header: Any,
) -> RegisterBroker:
    """Returns a broker's registration; `version` as a number is a DataVersion's counter."""
    body = RegistrationBody(
        data_version=version if isinstance(version, DataVersion) else DataVersion(1_700_000_000_000, version),
        topic_configs=tuple(TopicConfig(topic, 4, 4) if isinstance(topic, str) else topic for topic in topics),
        filter_servers=tuple(filters),
        topic_queue_mapping_infos=infos or {},
    )
    return RegisterBroker.of(RegistrationHeader(cluster, address, name, broker_id, ha, **header), body)


def json_body(answer: Command) -> Any:
    return loads(answer.body, "answer") if answer.body else None
