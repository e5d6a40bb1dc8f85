"""The registration with every NameServer: at the start, every 30 s, and at once when a topic changes.

Each NameServer has a task and a connection of its own, so that a slow or unreachable NameServer delays no other.
Source: broker/out/BrokerOuterAPI.java, BrokerController.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.errors import InvalidState, RocketMQError, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import ConnectionPool
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.framing.versions import too_old_for
from pyrmq_core.protocol.requests.nameserver.cluster_info import BrokerMemberGroup, GetBrokerMemberGroup
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import RegisterTopicInNamesrv
from pyrmq_core.protocol.routes.route import QueueData, TopicRouteData
from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.tables.topics import READ_WRITE, TopicTable
from pyrmq_core.servers.protocol.register_broker import (
    KnownDataVersion,
    QueryDataVersion,
    RegisterBroker,
    RegisteredBroker,
    RegistrationHeader,
    UnregisterBroker,
)
from pyrmq_core.servers.protocol.registration import RegistrationBody

log = line_logger(__name__)

# The least and the greatest time between two registrations (BrokerController.start).
PERIOD_SECONDS: Final = (10.0, 60.0)
FIRST_REPEAT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
# How long a send waits until the NameServers know the topic that it created, so that the next client finds a route.
# RocketMQ 5.4.0 waits up to registerBrokerTimeoutMills, 24 s. 4.9.7 does not wait, and a route may be missing.
ANNOUNCE_SECONDS: Final = 3.0
UNREGISTER_SECONDS: Final = 3.0
# Less than UNREGISTER_SECONDS, so that a NameServer that does not answer is logged before all calls are cancelled.
UNREGISTER_CALL_SECONDS: Final = 2.5
# How long a registration waits until the file of the topics is written.
FILE_SECONDS: Final = 1.0
# Registrations of more topics than this are encoded in a worker thread, since 10,000 topics take some 50 ms.
TOPICS_AT_ONCE: Final = 100


class BrokerRegistration:
    """The registration with all NameServers. `run` renews it until cancelled.

    `pool` has the connections to the NameServers. It stays open after `run`, so that `unregister` can use it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        header: RegistrationHeader,
        topics: TopicTable,
        pool: ConnectionPool,
        on_master: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._header = header
        self._topics = topics
        low, high = PERIOD_SECONDS
        self._period_seconds = min(max(config.register_name_server_period / 1000, low), high)
        self._timeout_seconds = config.register_broker_timeout_mills / 1000
        self._servers = [_NameServer(address) for address in dict.fromkeys(config.nameservers)]
        self._pool = pool
        self._user = config.access.inner_client
        self._succeeded = trio.Event()
        # On a slave: its master's addresses in a NameServer's latest answer. `on_master` is called when they change.
        self._on_master = on_master
        self.master_address: str | None = None
        self.master_ha_address: str | None = config.ha_master_address or None

    @property
    def ha_address(self) -> str:
        return self._header.ha_server_addr or ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Registers at intervals. Reports its start once every NameServer was tried and at least one has accepted."""
        async with trio.open_nursery() as nursery:
            for server in self._servers:
                nursery.start_soon(self._keep_registered, server)
                if self._config.enable_slave_acting_master:
                    nursery.start_soon(self._keep_alive, server)
            for server in self._servers:
                await server.tried.wait()
            if self._servers:
                await self._succeeded.wait()
            task_status.started()
            await trio.sleep_forever()

    def configure(self, config: BrokerConfig) -> None:
        self._config = config

    def register_now(self) -> None:
        for server in self._servers:
            server.again.set()

    async def register_anew(self, address: str) -> None:
        """Registers all topics with a restarted NameServer over a new connection. A failure is only logged."""
        self._pool.close(address)
        for server in self._servers:
            if server.address == address:
                await self._register(server)

    async def announce(self) -> None:
        """Sends the changed topics to the registered NameServers. Returns after all answers or a timeout.

        A failure is only logged. A NameServer gets all topics that changed since the version that it acknowledged last.
        One of 4.9 gets them in one registration. One of 5.x gets a request for each topic, since it could take such a
        registration for a complete one and remove all other topics (deleteTopicWithBrokerRegistration).
        """
        with trio.move_on_after(ANNOUNCE_SECONDS):
            async with trio.open_nursery() as nursery:
                for server in self._servers:
                    # Any other NameServer would refuse a single topic, and soon gets a registration of all topics.
                    if server.is_registered:
                        nursery.start_soon(self._announce, server)

    async def unregister(self) -> None:
        """Unregisters from all NameServers. A failure is only logged, since they remove silent brokers anyway."""
        header = self._header
        request = UnregisterBroker(header.cluster_name, header.broker_addr, header.broker_name, header.broker_id)

        async def leave(server: _NameServer) -> None:
            try:
                await self._call(server, request.to_command(), UNREGISTER_CALL_SECONDS)
            except RocketMQError as error:
                log.warning("not unregistered, and routes name this broker until it counts as dead: %s", error)

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
            succeeded = await self._register(server)
            server.tried.set()
            if succeeded and not was_registered and sent != self._topics.data_version:
                continue  # a topic was created meanwhile, and `announce` skipped this unregistered NameServer
            with trio.move_on_after(pause if succeeded else RETRY_SECONDS):
                await server.again.wait()
                await trio.sleep(RETRY_SECONDS)
            pause = self._period_seconds if succeeded else pause

    async def _keep_alive(self, server: _NameServer) -> None:
        """Sends heartbeats between the registrations, so that the NameServer soon notices if this broker has died."""
        config = self._config
        while True:
            await trio.sleep(config.broker_heartbeat_interval / 1000)
            if not server.is_registered:
                continue
            with suppress(RocketMQError):
                answer = await self._call(server, self._query(), config.send_heartbeat_timeout_millis / 1000)
                if KnownDataVersion.from_command(answer).data_version is None:
                    server.again.set()

    async def _announce(self, server: _NameServer) -> None:
        await self._register(server, only_changes=True)

    async def _register(self, server: _NameServer, *, only_changes: bool = False) -> bool:
        """Calls `_register_now` under a lock, so that an older list of topics cannot overwrite a newer one."""
        async with server.registering:
            return await self._register_now(server, only_changes=only_changes)

    async def _register_now(self, server: _NameServer, *, only_changes: bool) -> bool:
        """Registers all or only the changed topics, once their file is written. Returns True if that is accepted."""
        with trio.move_on_after(FILE_SECONDS), suppress(StoreError):  # a failed disk must not end the registration
            await self._topics.file.written()
        changed = self._topics.changed_since(server.acknowledged) if only_changes else None
        if changed == []:
            return True
        may_ask = not (only_changes or self._config.force_register or self._config.is_slave)
        if server.is_registered and may_ask and await self._is_known(server):
            server.succeeded(self._header.broker_name, server.acknowledged)
            return True
        topics = self._permitted(self._topics if changed is None else changed)
        if changed is not None and not too_old_for(RequestCode.REGISTER_TOPIC_IN_NAMESRV, server.version):
            return await self._register_singly(server, topics)
        body = RegistrationBody(self._topics.data_version, topics)
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
        server.succeeded(self._header.broker_name, body.data_version)
        self._succeeded.set()
        if self._config.is_slave:
            self.note_master(registered.master_addr, registered.ha_server_addr)
        if registered.order_topic_table:
            self._topics.mark_ordered(registered.order_topic_table, clock.now_ms())
        return True

    async def _register_singly(self, server: _NameServer, topics: Sequence[TopicConfig]) -> bool:
        """Registers topics with a NameServer, one request for each. Returns False, and logs the reason, if it fails.

        First checks that the NameServer knows this broker, since it answers success even to an unknown one.
        """
        version, broker_name = self._topics.data_version, self._header.broker_name
        try:
            answer = await self._call(server, self._query(), self._timeout_seconds)
            if KnownDataVersion.from_command(answer).data_version is None:
                raise InvalidState(f"it does not know {broker_name}, which registers again")
            for topic in topics:
                numbers = (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
                request = RegisterTopicInNamesrv(topic.topic, (QueueData(broker_name, *numbers),))
                await self._call(server, request.to_command(), self._timeout_seconds)
        except RocketMQError as error:
            server.failed(error)
            return False
        server.succeeded(broker_name, version)
        return True

    def note_master(self, address: str | None, ha_address: str | None) -> None:
        """Saves the master's addresses. None leaves an old address unchanged, since the master may return there."""
        before = self.master_address, self.master_ha_address
        self.master_address = address or self.master_address
        if not self._config.ha_master_address:
            self.master_ha_address = ha_address or self.master_ha_address
        if before != (self.master_address, self.master_ha_address):
            self._on_master()

    async def ask_master(self, request: Command, timeout: float) -> Command:
        """Returns the response of this slave's master, whatever its code. Raises `RocketMQError` if none comes."""
        if self.master_address is None:
            raise InvalidState("no NameServer names a master of this broker")
        return await self.ask_broker(self.master_address, request, timeout)

    async def members(self, timeout: float) -> dict[int, str]:
        """Returns the addresses of the brokers with this broker's name, by id, from the first NameServer that answers.

        Each NameServer has `timeout` seconds. Raises `RocketMQError` if none answers.
        """
        request = GetBrokerMemberGroup(self._header.broker_name, self._header.cluster_name).to_command()
        return dict(BrokerMemberGroup.from_command(await self._first_answer(request, timeout)).broker_addrs)

    async def route(self, topic: str, timeout: float) -> TopicRouteData:
        """Returns a topic's route from the first NameServer that answers. Raises `RocketMQError` if none answers."""
        request = GetRouteInfo(topic, accept_standard_json_only=True).to_command()
        return RouteInfo.from_command(await self._first_answer(request, timeout)).route

    async def _first_answer(self, request: Command, timeout: float) -> Command:
        failure: RocketMQError = InvalidState("no NameServer is named")
        for server in self._servers:
            try:
                return await self._call(server, request, timeout)
            except RocketMQError as error:
                failure = error
        raise failure

    async def ask_broker(self, address: str, request: Command, timeout: float) -> Command:
        """Returns the response of another broker, whatever its code. Raises `RocketMQError` if none comes."""
        return await self._pool.call(address, self._signed(request), timeout=timeout)

    def _permitted(self, topics: Iterable[TopicConfig]) -> tuple[TopicConfig, ...]:
        permission = self._config.broker_permission
        if permission & READ_WRITE == READ_WRITE:
            return tuple(topics)
        return tuple([replace(topic, perm=topic.perm & permission) for topic in topics])

    async def _is_known(self, server: _NameServer) -> bool:
        """Returns True if the NameServer has the current version of the topics. The query is also a heartbeat."""
        version = self._topics.data_version
        try:
            answer = await self._call(server, self._query(), self._timeout_seconds)
            reported = KnownDataVersion.from_command(answer)
        except RocketMQError as error:
            log.info(
                "NameServer %s is sent all topics, since the version is not known there: %s", server.address, error
            )
            return False
        return not reported.changed and reported.data_version in (None, version)

    def _query(self) -> Command:
        header, version = self._header, self._topics.data_version
        query = QueryDataVersion(header.cluster_name, header.broker_addr, version, header.broker_name, header.broker_id)
        return query.to_command()

    def _request(self, body: RegistrationBody) -> Command:
        return RegisterBroker.of(self._header, body).to_command()

    async def _call(self, server: _NameServer, request: Command, timeout: float) -> Command:
        answer = await self._pool.call(server.address, self._signed(request), timeout=timeout)
        server.version = answer.version
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode(request.code), server.address)
        return answer

    def _signed(self, request: Command) -> Command:
        user = self._user
        if user is None:
            return request
        return replace(request, ext=sign(request.ext, request.body, user.name, user.password))


class _NameServer:
    def __init__(self, address: str) -> None:
        self.address = address
        self.is_registered = False
        self.tried = trio.Event()
        self.again = trio.Event()  # set to register all topics soon, as after any failure
        self.registering = trio.Lock()
        self.version = 0  # the RocketMQ release of the NameServer, from its last answer
        self.acknowledged = NO_VERSION  # the version of the topics that this NameServer has
        self._failed = RareLine()

    def succeeded(self, broker_name: str, version: DataVersion) -> None:
        if version.counter > self.acknowledged.counter:
            self.acknowledged = version
        if not self.is_registered:
            log.info("%s is registered with NameServer %s", broker_name, self.address)
            self._failed = RareLine()
        self.is_registered = True

    def failed(self, error: RocketMQError) -> None:
        """Logs a failure, at most once a minute until the next success, and schedules a full registration."""
        if self._failed.is_due():
            log.warning("not registered with NameServer %s: %s%s", self.address, error, self._failed.left_out())
        self.is_registered = False
        self.again.set()
