"""`LiteSubscriptions`: the lite topics to which a consumer subscribes, at each broker of their parent topic.

A broker forgets a client's subscriptions when it restarts, or if they are not renewed for 3 minutes, so they are
renewed every 30 s. At a broker a client id has only one parent topic, so each parent topic gets another client id.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pop.requests import PopRequests
from pyrmq_core.client.unique_ids import unique_id
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import Handler, Peer
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.pop.lite import (
    LiteAction,
    LiteChange,
    LiteStart,
    LiteSubscriptionCtl,
    NotifyUnsubscribeLite,
)
from pyrmq_core.protocol.requests.pop.pop_message import ANY_QUEUE

log = logging.getLogger(__name__)

# The interval of renewals, as in Java's gRPC clients.
RENEW_SECONDS: Final = 30.0
LEAVING_SECONDS: Final = 3.0
RENEWING: Final = "renewing the lite topics of"


@dataclass(eq=False, slots=True)
class _Client:
    """The subscriptions of one client id to lite topics of one parent topic. Changes are sent one after another."""

    client_id: str
    names: set[str] = field(default_factory=set)
    is_registered: bool = False
    turn: trio.Lock = field(default_factory=trio.Lock)


class LiteNotices:
    """The client ids that subscribe to lite topics in a session, and the handler of brokers' notices to them."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFY_UNSUBSCRIBE_LITE: self._unsubscribed}

    def _unsubscribed(self, request: Command, peer: Peer) -> None:
        notice = NotifyUnsubscribeLite.from_command(request)
        if notice.lite_topic in (names := self.names.get(notice.client_id, set())):
            names.discard(notice.lite_topic)
            log.info(
                "another consumer of group %s has lite topic %s now, says %s",
                notice.consumer_group,
                notice.lite_topic,
                peer.address,
            )


class LiteSubscriptions:
    """The lite topics of one consumer, by parent topic. Topics and the group include the namespace.

    Tasks in `nursery` renew the subscriptions. Renewals that fail are repeated, and reported as `problems`.
    """

    def __init__(
        self,
        session: ClientSession,
        requests: PopRequests,
        group: str,
        timeout: float,
        nursery: trio.Nursery,
        problems: Problems,
    ) -> None:
        self._session = session
        self._requests = requests
        self._group = group
        self._timeout = timeout
        self._nursery = nursery
        self._problems = problems
        self._clients: dict[str, _Client] = {}

    def names(self, topic: str) -> frozenset[str]:
        client = self._clients.get(topic)
        return frozenset(client.names) if client is not None else frozenset()

    async def client_id(self, topic: str) -> str:
        """Returns the registered client id for pops of lite topics of `topic`. Raises an error if all brokers fail."""
        client = self._client(topic)
        if not client.is_registered:
            async with client.turn:
                failures = await self._send(topic, client, LiteAction.COMPLETE_ADD, tuple(client.names))
            for broker_name, error in failures.items():
                if error is not None and None not in failures.values():
                    raise error
                self._note(topic, broker_name, error)
            self._registered(topic, client)
        return client.client_id

    async def add(self, topic: str, names: Collection[str], start: LiteStart | None) -> None:
        """Subscribes to lite topics at every broker, from `start`. With None the broker chooses where to begin.

        If a broker refuses or fails, raises its error. The other brokers then forget the new subscriptions within 3
        minutes.
        """
        client = self._client(topic)
        async with client.turn:
            again = client.names.intersection(names) if start is not None else ()
            if again:  # brokers look for messages from `start` on only when a subscription begins
                _check(await self._send(topic, client, LiteAction.PARTIAL_REMOVE, tuple(again)))
            answers = await self._send(topic, client, LiteAction.PARTIAL_ADD, tuple(names), start)
            if None in answers.values():
                self._registered(topic, client)
            _check(answers)
            client.names.update(names)

    async def remove(self, topic: str, names: Collection[str]) -> None:
        """Ends subscriptions to lite topics. Raises the error of a broker. The next renewal then ends them there."""
        client = self._client(topic)
        async with client.turn:
            client.names.difference_update(names)
            _check(await self._send(topic, client, LiteAction.PARTIAL_REMOVE, tuple(names)))

    async def close(self) -> None:
        """Ends all subscriptions. Does not raise: a broker that cannot be reached forgets them later."""
        with trio.move_on_after(LEAVING_SECONDS, shield=True):
            for topic, client in self._clients.items():
                if client.is_registered:
                    with suppress(RocketMQError):
                        await self._send(topic, client, LiteAction.COMPLETE_REMOVE)
        for client in self._clients.values():
            self._session.callbacks(LiteNotices).names.pop(client.client_id, None)

    def _client(self, topic: str) -> _Client:
        if topic not in self._clients:
            client = self._clients[topic] = _Client(f"{self._session.client_id}@{unique_id()}")
            self._session.callbacks(LiteNotices).names[client.client_id] = client.names
        return self._clients[topic]

    def _registered(self, topic: str, client: _Client) -> None:
        if not client.is_registered:
            client.is_registered = True
            self._nursery.start_soon(self._renew, topic, client)

    async def _renew(self, topic: str, client: _Client) -> None:
        while True:
            await trio.sleep(RENEW_SECONDS)
            async with client.turn:
                try:
                    failures = await self._send(topic, client, LiteAction.COMPLETE_ADD, tuple(client.names))
                except RocketMQError as error:
                    log.info("the lite topics of %s are renewed later: %s", topic, error)
                    continue
            for broker_name, failure in failures.items():
                self._note(topic, broker_name, failure)

    def _note(self, topic: str, broker_name: str, error: RocketMQError | None) -> None:
        if error is None:
            self._problems.passed(RENEWING, f"{topic} at {broker_name}")
        else:
            self._problems.failed(RENEWING, f"{topic} at {broker_name}", error)

    async def _send(
        self,
        topic: str,
        client: _Client,
        action: LiteAction,
        names: tuple[str, ...] = (),
        start: LiteStart | None = None,
    ) -> dict[str, RocketMQError | None]:
        """Sends a change to every broker of the topic. Returns the error of each broker, or None for success."""
        change = LiteChange(action, client.client_id, self._group, topic, names, start)
        command, failures = LiteSubscriptionCtl((change,)).to_command(), dict[str, RocketMQError | None]()

        async def send(broker_name: str) -> None:
            try:
                queue = MessageQueue(topic, broker_name, ANY_QUEUE)
                await self._session.ask_broker(queue, command, timeout=self._timeout)
                failures[broker_name] = None
            except RocketMQError as error:
                failures[broker_name] = error

        async with trio.open_nursery() as nursery:
            for broker_name in await self._requests.brokers(topic):
                nursery.start_soon(send, broker_name)
        return failures


def _check(answers: Mapping[str, RocketMQError | None]) -> None:
    for error in filter(None, answers.values()):
        raise error
