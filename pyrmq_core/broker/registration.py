"""The registration with every NameServer: at the start, every 30 s, and at once when a topic changes.

Each NameServer has a task and a connection of its own: a slow or missing one then delays no other, and a NameServer
forgets one broker per closed connection. Source: broker/out/BrokerOuterAPI.java, BrokerController.java (5.4.0).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.tables.topics import TopicTable
from pyrmq_core.errors import RocketMQError, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import ConnectionPool
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.requests.nameserver.register_broker import (
    RegisterBroker,
    RegisteredBroker,
    RegistrationHeader,
    UnregisterBroker,
)
from pyrmq_core.protocol.routes.registration import RegistrationBody

log = line_logger(__name__)

# The least and the greatest period (BrokerController.start).
PERIOD_SECONDS: Final = (10.0, 60.0)
FIRST_REPEAT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
# How long a send waits for the NameServers to learn of the topic it created.
ANNOUNCE_SECONDS: Final = 3.0
UNREGISTER_SECONDS: Final = 3.0
# How long a registration waits for the file of its topics.
FILE_SECONDS: Final = 1.0
# More topics are encoded in a worker thread: 10,000 take some 50 ms, every 30 s.
TOPICS_AT_ONCE: Final = 100


class BrokerRegistration:
    """The registration with all NameServers. `run` keeps it until cancelled; `announce` and `unregister` act once.

    `pool` has no other connection to a NameServer, and outlives `run`, for `unregister`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        header: RegistrationHeader,
        topics: TopicTable,
        pool: ConnectionPool,
    ) -> None:
        self._header = header
        self._topics = topics
        low, high = PERIOD_SECONDS
        self._period_seconds = min(max(config.register_name_server_period / 1000, low), high)
        self._timeout_seconds = config.register_broker_timeout_mills / 1000
        self._servers = [_NameServer(address) for address in dict.fromkeys(config.nameservers)]
        self._pool = pool
        self._succeeded = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Registers again and again; started when every first attempt has ended and any attempt has succeeded."""
        async with trio.open_nursery() as nursery:
            for server in self._servers:
                nursery.start_soon(self._keep_registered, server)
            for server in self._servers:
                await server.tried.wait()
            if self._servers:
                await self._succeeded.wait()
            task_status.started()
            await trio.sleep_forever()

    async def announce(self, topics: Sequence[TopicConfig]) -> None:
        """Sends these topics alone to the registered NameServers; returns after all answers, or after a time-out.

        A failure is only logged.
        """
        with trio.move_on_after(ANNOUNCE_SECONDS):
            async with trio.open_nursery() as nursery:
                for server in self._servers:
                    # A server that does not know this broker would refuse a single topic; it gets all of them soon.
                    if server.is_registered:
                        nursery.start_soon(self._register, server, topics)

    async def unregister(self) -> None:
        """Unregisters everywhere; a failure is only logged, since a NameServer's own time-out does the same."""
        header = self._header
        request = UnregisterBroker(header.cluster_name, header.broker_addr, header.broker_name, header.broker_id)

        async def leave(server: _NameServer) -> None:
            try:
                await self._call(server, request.to_command(), UNREGISTER_SECONDS)
            except RocketMQError as error:
                log.info("not unregistered: %s", error)

        with trio.move_on_after(UNREGISTER_SECONDS):
            async with trio.open_nursery() as nursery:
                for server in self._servers:
                    if server.is_registered:
                        nursery.start_soon(leave, server)

    async def _keep_registered(self, server: _NameServer) -> None:
        pause = FIRST_REPEAT_SECONDS
        while True:
            server.again = trio.Event()
            was_registered, sent = server.is_registered, self._topics.data_version
            succeeded = await self._register(server, None)
            server.tried.set()
            if succeeded and not was_registered and sent != self._topics.data_version:
                continue  # a topic was made meanwhile, and was not announced
            with trio.move_on_after(pause if succeeded else RETRY_SECONDS):
                await server.again.wait()
                await trio.sleep(RETRY_SECONDS)
            pause = self._period_seconds if succeeded else pause

    async def _register(self, server: _NameServer, topics: Sequence[TopicConfig] | None) -> bool:
        """Registers these topics, or all, after their file is written; returns True if the NameServer accepts them."""
        with trio.move_on_after(FILE_SECONDS), suppress(StoreError):  # a failed disk must not end the registration
            await self._topics.file.written()
        body = RegistrationBody(self._topics.data_version, tuple(topics or self._topics))
        if len(body.topic_configs) > TOPICS_AT_ONCE:
            request = await trio.to_thread.run_sync(self._request, body)
        else:
            request = self._request(body)
        try:
            answer = await self._call(server, request, self._timeout_seconds)
            registered = RegisteredBroker.from_command(answer)
        except RocketMQError as error:
            server.failed(error)
            return False
        server.succeeded(self._header.broker_name)
        self._succeeded.set()
        if registered.order_topic_table:
            self._topics.mark_ordered(registered.order_topic_table, time.time_ns() // 1_000_000)
        return True

    def _request(self, body: RegistrationBody) -> Command:
        return RegisterBroker.of(self._header, body).to_command()

    async def _call(self, server: _NameServer, request: Command, timeout: float) -> Command:
        answer = await self._pool.call(server.address, request, timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode(request.code), server.address)
        return answer


class _NameServer:
    """The state of one NameServer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_registered = False
        self.tried = trio.Event()
        self.again = trio.Event()  # set by a failure, also that of a single topic: all topics are sent soon
        self._is_told = False

    def succeeded(self, broker_name: str) -> None:
        if not self.is_registered:
            log.info("%s is registered with NameServer %s", broker_name, self.address)
        self.is_registered, self._is_told = True, False

    def failed(self, error: RocketMQError) -> None:
        """Logs a failure, once until the next success, and has all topics sent soon."""
        if not self._is_told:
            log.warning("not registered with NameServer %s: %s", self.address, error)
        self.is_registered, self._is_told = False, True
        self.again.set()
