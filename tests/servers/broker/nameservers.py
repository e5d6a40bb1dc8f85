"""NameServers that record a broker's requests, and answer as the test sets them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from pyrmq_core.network import Listening, Peer, serve
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.versions import version_number
from pyrmq_core.servers.protocol.register_broker import (
    KnownDataVersion,
    QueryDataVersion,
    RegisterBroker,
    RegisteredBroker,
)


@dataclass
class RecordingNameServer:
    """A NameServer that records requests and their times; `refuses_single`, `refused`, `answers` are its faults.

    It is of 4.9.7 unless a test says otherwise; `knows` is its answer to a broker that asks whether it is registered.
    """

    reported: list[tuple[float, Command]] = field(default_factory=list)
    answers: bool = True
    refuses_single: bool = False
    refused: frozenset[int] = frozenset()
    ordered: dict[str, str] | None = None
    closed: int = 0
    address: str = ""
    release: str = "4.9.7"
    knows: bool = True

    async def handle(self, request: Command, _: Peer) -> Command | None:
        answer = await self._answer(request)
        return replace(answer, version=version_number(self.release))

    async def _answer(self, request: Command) -> Command:
        self.reported.append((trio.current_time(), request))
        if not self.answers:
            await trio.sleep_forever()
        if request.code in self.refused:
            return refusal(ResponseCode.NO_PERMISSION, "the words of the test")
        if request.code == RequestCode.QUERY_DATA_VERSION and self.knows:
            version = QueryDataVersion.from_command(request).data_version
            return KnownDataVersion(changed=False, data_version=version).to_command()
        if request.code != RequestCode.REGISTER_BROKER:
            return success()
        if self.refuses_single and len(RegisterBroker.from_command(request).body().topic_configs) == 1:
            return refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return RegisteredBroker(order_topic_table=self.ordered).to_command()

    def registrations(self) -> list[tuple[float, RegisterBroker]]:
        codes = [(at, request) for at, request in self.reported if request.code == RequestCode.REGISTER_BROKER]
        return [(at, RegisterBroker.from_command(request)) for at, request in codes]

    def topics(self) -> list[set[str]]:
        """Returns the topics of each registration."""
        return [
            {topic.topic for topic in registration.body().topic_configs} for _, registration in self.registrations()
        ]

    def _count_closed(self, _: Peer) -> None:
        self.closed += 1

    async def run(self, port: int = 0, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:

            async def start() -> Listening:
                listening: Listening = await nursery.start(self._serve, port)
                return listening

            self.address = (await start()).address
            task_status.started()

    async def _serve(self, port: int, *, task_status: trio.TaskStatus[Listening]) -> None:
        await serve(self.handle, "127.0.0.1", port, on_close=self._count_closed, task_status=task_status)


@asynccontextmanager
async def nameservers(count: int = 1) -> AsyncIterator[list[RecordingNameServer]]:
    servers = [RecordingNameServer() for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for server in servers:
            await nursery.start(server.run)
        yield servers
        nursery.cancel_scope.cancel()
