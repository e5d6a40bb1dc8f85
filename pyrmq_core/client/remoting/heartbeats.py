"""The heartbeats that report a client's groups to brokers, and the brokers' versions, which are in the answers.

A broker sends transaction checks and replies to a client only over a connection with a heartbeat. A client without
consumers sends heartbeats only to masters. Source: client/impl/factory/MQClientInstance.java
(sendHeartbeatToAllBroker).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Final

import trio

from pyrmq_core.client.remoting.remoting_client import RemotingClient
from pyrmq_core.errors import CallTimeout, InvalidMessage, NetworkError, ResponseError, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.framing.versions import V5_0_0
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, UnregisterClient
from pyrmq_core.protocol.routes.route import BrokerData

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 3.0
# The time to report to a broker that a group was left. It is shorter than the time for closing a client, so that a
# broker that does not answer is still logged.
GOODBYE_SECONDS: Final = 1.5
TOLD_AT_ONCE: Final = 64
HEARTBEAT: Final = "the heartbeat to"
# The seconds before each attempt to reach a broker again. The last value is repeated.
RETURN_SECONDS: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


class Heartbeats:
    def __init__(
        self, client_id: str, caller: RemotingClient, brokers: Callable[[], Iterable[BrokerData]], problems: Problems
    ) -> None:
        self._client_id = client_id
        self._caller = caller
        self._brokers = brokers
        self._problems = problems
        self._not_left = RareLine()
        self._producers: set[str] = set()
        self._transactional: set[str] = set()  # the producer groups that brokers ask for the states of transactions
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        self._beat: Command | None = None  # the encoded heartbeat for all brokers, until a group changes
        self._versions: dict[str, int] = {}
        self._reached: set[str] = set()
        self._perhaps_reached: set[str] = set()
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    @property
    def producer_groups(self) -> frozenset[str]:
        return frozenset(self._producers)

    @property
    def consumer_groups(self) -> frozenset[str]:
        return frozenset(self._consumers)

    def add_producer(self, group: str, *, transactional: bool = False) -> None:
        self._producers.add(group)
        if transactional:
            self._transactional.add(group)
        self._beat = None

    def add_consumer(self, group: str, data: Callable[[], ConsumerData]) -> None:
        """Adds a consumer group to all later heartbeats. `data` returns the group's subscriptions.

        Call this method again when the subscriptions change, since the encoded heartbeat is reused until then.
        """
        self._consumers[group] = data
        self._beat = None

    def version_of(self, address: str) -> int | None:
        return self._versions.get(address)

    def was_reached(self, address: str) -> bool:
        return address in self._reached

    async def send_round(self) -> None:
        """Sends a heartbeat to every broker that should know this client. A failure is repeated by the next round."""
        limit = trio.CapacityLimiter(TOLD_AT_ONCE)
        addresses = self._addresses()
        self._problems.keep(HEARTBEAT, addresses)
        self._forget_others()
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._introduce, address, limit)

    async def send_now(self, address: str, *, timeout: float = TIMEOUT_SECONDS) -> int:
        """Sends a heartbeat to a broker now, and returns its version. Raises `NetworkError` and `ResponseError`."""
        with trio.move_on_after(timeout):
            async with self._locks[address]:
                return await self._send(address, timeout)
        raise CallTimeout(
            f"{address} did not answer a heartbeat within {timeout:g} s; is that broker alive?",
            address=address,
            request_left=True,
        )

    async def introduce(self, address: str) -> None:
        try:
            await self.send_now(address)
        except RocketMQError as error:
            self._problems.failed(HEARTBEAT, address, error)
        else:
            self._problems.passed(HEARTBEAT, address)

    async def connected(self, address: str) -> None:
        """Sends a heartbeat over a new connection to a broker that should know this client, as clients of 5.x do."""
        self._reached.discard(address)
        if not self._locks[address].locked() and address in self._addresses():
            await self.introduce(address)

    def disconnected(self, address: str) -> bool:
        """Records that the connection to a broker ended. Returns whether the caller should run `return_to` for it.

        That is True if the broker had accepted a heartbeat and the client has transactional producers: a broker sends
        transaction checks only over a connection with a heartbeat.
        """
        was_reached = address in self._reached
        self._reached.discard(address)
        self._perhaps_reached.discard(address)
        return was_reached and bool(self._transactional)

    async def return_to(self, address: str) -> None:
        """Sends heartbeats to a broker after its connection ended, at intervals of up to 4 s, until one is answered.

        It also ends when no route names the broker any more, or when the client has no transactional producers left.
        """
        for seconds in chain(RETURN_SECONDS, repeat(RETURN_SECONDS[-1])):
            await trio.sleep(seconds)
            if self.was_reached(address) or not self._transactional or address not in self._addresses():
                return
            try:
                await self.send_now(address)
            except NetworkError:
                continue
            except RocketMQError as error:  # the broker refuses this client: only the regular rounds try again
                self._problems.failed(HEARTBEAT, address, error)
            return

    async def remove(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        if producer is not None:
            self._producers.discard(producer)
            self._transactional.discard(producer)
        if consumer is not None:
            self._consumers.pop(consumer, None)
        self._beat = None
        command = UnregisterClient(self._client_id, producer_group=producer, consumer_group=consumer).to_command()
        async with trio.open_nursery() as nursery:
            for address in sorted(self._perhaps_reached):
                nursery.start_soon(self._say_goodbye, address, command, producer or consumer)

    def _addresses(self) -> list[str]:
        if not self._producers and not self._consumers:
            return []
        brokers = self._brokers()
        if self._consumers:
            return list(dict.fromkeys(address for broker in brokers for address in broker.broker_addrs.values()))
        return list(dict.fromkeys(broker.master for broker in brokers if broker.master is not None))

    async def _send(self, address: str, timeout: float) -> int:
        beat = self._encoded()
        self._perhaps_reached.add(address)
        try:
            answer = await self._caller.call(address, beat, timeout=timeout)
        except NetworkError as error:
            if not error.request_left:
                self._perhaps_reached.discard(address)
            raise
        self._versions[address] = answer.version
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, beat.code, address)
        self._reached.add(address)
        return answer.version

    def _forget_others(self) -> None:
        """Removes the versions and locks of brokers that are in no known route any more, to limit memory."""
        named = {address for broker in self._brokers() for address in broker.broker_addrs.values()}
        for address in self._versions.keys() - named:
            del self._versions[address]
        for address in self._locks.keys() - named:
            if not self._locks[address].locked():
                del self._locks[address]

    def _encoded(self) -> Command:
        if self._beat is None:
            consumers = tuple(data() for data in self._consumers.values())
            self._beat = HeartBeat(self._client_id, tuple(sorted(self._producers)), consumers).to_command()
        return self._beat

    async def _introduce(self, address: str, limit: trio.CapacityLimiter) -> None:
        async with limit:
            await self.introduce(address)

    async def _say_goodbye(self, address: str, command: Command, group: str | None) -> None:
        try:
            answer = await self._caller.call(address, command, timeout=GOODBYE_SECONDS)
            if answer.code != ResponseCode.SUCCESS:
                raise response_error(answer, command.code, address)
        except RocketMQError as error:
            if self._not_left.is_due():
                text = f"{error}{self._not_left.left_out()}"
                log.warning("group %s stays at a broker until the connection ends: %s", group, text)


async def require_timer_messages(heartbeats: Heartbeats, queue: MessageQueue, address: str, *, timeout: float) -> None:
    """Raises `InvalidMessage` if the queue's broker is older than 5.0, and would ignore a message's delivery time.

    Sends a heartbeat first if the version of the broker at `address` is unknown. Raises `NetworkError` if the broker
    does not answer. In both cases the message was not sent.
    """
    version = heartbeats.version_of(address)
    if version is None:
        try:
            version = await heartbeats.send_now(address, timeout=timeout)
        except ResponseError:
            version = heartbeats.version_of(address) or 0
        except NetworkError as error:
            raise NetworkError(
                f"the message was not sent, because {queue.broker_name} did not report its version: {error}",
                address=address,
                request_left=False,
            ) from error
    if version < V5_0_0:
        raise InvalidMessage(
            f"topic {queue.topic}: deliver_at and delay need brokers of 5.0 or later; {queue.broker_name} "
            f"({address}) is older (version {version}) and would deliver at once; use delay_level"
        )
