"""Consumers that pop at scripted brokers: requests and their number, cancelled calls, extension, wrong arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

from pyrmq_core import (
    ConsumeFromWhere,
    InvalidArgument,
    InvalidState,
    MessageExt,
    PopConsumer,
    ResponseError,
    aio,
    blocking,
)
from pyrmq_core.errors import RocketMQError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.messages.sysflag import COMPRESSED
from pyrmq_core.protocol.requests.pop.notification import MessageAwaited
from pyrmq_core.protocol.requests.pop.pop_message import POLLING_FULL, POLLING_TIMEOUT, PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.settle import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
)
from tests.support.scripted import ScriptedServer, Table, route_of, scripted_server
from tests.support.waiting import until

Code = RequestCode
TOPIC, GROUP = "jobs", "workers"
SECONDS = 20.0


@dataclass
class PopBroker:
    """A broker's answers: the bodies that wait, and what it was asked."""

    name: str
    waiting: list[bytes] = field(default_factory=list)
    offset: int = 0
    holds: bool = True
    arrived: trio.Event = field(default_factory=trio.Event)
    takes_batches: bool = True
    tries: int = 0
    compressed: bytes = b"no body is this"  # its record says that it is compressed

    def add(self, *bodies: bytes) -> None:
        self.waiting += bodies
        self.arrived.set()

    async def __call__(self, request: Command, peer: Peer) -> Command | None:
        match request.code:
            case Code.POP_MESSAGE:
                asked = PopMessage.from_command(request)
                if not self.waiting and self.holds:
                    with trio.move_on_after(asked.poll_time_ms / 1000):
                        await self.arrived.wait()
                return self.popped(asked)
            case Code.NOTIFICATION:
                with trio.move_on_after(int(request.ext["pollTime"]) / 1000):
                    await self.arrived.wait()
                return MessageAwaited(bool(self.waiting)).to_command()
            case Code.CHANGE_MESSAGE_INVISIBLETIME:
                asked_time = ChangeInvisibleTime.from_command(request).invisible_ms
                return InvisibleTimeChanged(2, asked_time, 1).to_command()
            case Code.ACK_MESSAGE | Code.HEART_BEAT | Code.UNREGISTER_CLIENT | Code.CONSUMER_SEND_MSG_BACK:
                return success()
            case Code.BATCH_ACK_MESSAGE if self.takes_batches:
                return success()
            case _:
                return refusal(3, f" request type {request.code} not supported")

    def popped(self, asked: PopMessage) -> Command:
        bodies = self.waiting[: asked.max_msg_nums]
        del self.waiting[: len(bodies)]
        if not self.waiting and self.arrived.is_set():  # pops that wait do so for the next message
            self.arrived = trio.Event()
        if not bodies:
            return PopAnswer(POLLING_TIMEOUT).to_command()
        start, self.offset = self.offset, self.offset + len(bodies)
        offsets = range(start, self.offset)
        records = b"".join(map(self.record, bodies, offsets))
        text = ",".join(map(str, offsets))
        return PopAnswer(
            0, None, 1, asked.invisible_ms, 1, 0, f"0 0 {start}", f"0 0 {text}", None, records
        ).to_command()

    def record(self, body: bytes, offset: int) -> bytes:
        return encode_record(
            topic=TOPIC,
            queue_id=0,
            queue_offset=offset,
            commit_log_offset=1000 + offset,
            body=body,
            properties="",
            born_timestamp_ms=1,
            born_host="127.0.0.1:1",
            store_timestamp_ms=1,
            store_host="127.0.0.1:2",
            reconsume_times=self.tries,
            sys_flag=COMPRESSED if body == self.compressed else 0,
        )


@dataclass
class Scene:
    consumer: PopConsumer
    brokers: list[PopBroker]
    servers: list[ScriptedServer]

    @property
    def broker(self) -> PopBroker:
        return self.brokers[0]

    @property
    def server(self) -> ScriptedServer:
        return self.servers[0]

    def of(self, *codes: int) -> list[Command]:
        return self.server.of(*codes)


@asynccontextmanager
async def scene(*names: str, kind: type[PopBroker] = PopBroker, **settings: Any) -> AsyncIterator[Scene]:
    """Yields a consumer over a broker of each name."""
    table = Table()
    brokers = [kind(name) for name in names or ("broker-a",)]
    async with scripted_server(table) as nameserver, trio.open_nursery() as nursery:
        servers = []
        for broker in brokers:
            server = ScriptedServer(nursery, broker)
            await server.start()
            servers.append(server)
        addresses = {broker.name: server.address for broker, server in zip(brokers, servers, strict=True)}
        table.routes[TOPIC] = route_of(addresses)
        async with PopConsumer(GROUP, nameserver=nameserver.address, **settings) as consumer:
            yield Scene(consumer, brokers, servers)
        nursery.cancel_scope.cancel()


async def test_an_idle_worker_costs_one_request() -> None:
    async with scene() as at:
        with trio.fail_after(SECONDS):
            assert await at.consumer.receive(TOPIC, 32, wait=2.0) == []
        polls = [PopMessage.from_command(request) for request in at.of(Code.POP_MESSAGE)]
        assert [(0 < poll.poll_time_ms <= 2000, poll.born_time_ms, poll.queue_id) for poll in polls] == [(True, 0, -1)]
        assert at.of(Code.NOTIFICATION) == []


async def test_acknowledgements_that_wait_share_a_request() -> None:
    async with scene() as at:
        at.broker.add(*(b"%d" % number for number in range(20)))
        deliveries = await at.consumer.receive(TOPIC, 32)
        async with trio.open_nursery() as nursery:
            for delivery in deliveries:
                nursery.start_soon(delivery.ack)
        batch = [BatchAckMessage.from_command(request) for request in at.of(Code.BATCH_ACK_MESSAGE)]
        acked = [offset for request in batch for entry in request.entries for offset in entry.offsets]
        acked += [AckMessage.from_command(request).offset for request in at.of(Code.ACK_MESSAGE)]
        assert sorted(acked) == list(range(20))
        assert len(at.of(Code.ACK_MESSAGE)) + len(batch) <= 2
        assert all(delivery.is_settled for delivery in deliveries)


@pytest.mark.parametrize("tries", [0, 16])
async def test_a_record_that_cannot_be_read_costs_itself(tries: int, caplog: pytest.LogCaptureFixture) -> None:
    """It comes again, and moves to the dead letters in the end."""
    async with scene() as at:
        at.broker.tries = tries
        at.broker.add(b"a", at.broker.compressed, b"b")
        deliveries = await at.consumer.receive(TOPIC, 32)
        assert [delivery.message.body for delivery in deliveries] == [b"a", b"b"]
        if tries:
            await at.server.wait_seen(Code.ACK_MESSAGE)
            (buried,) = at.of(Code.CONSUMER_SEND_MSG_BACK)
            assert (buried.ext["delayLevel"], buried.ext["offset"]) == ("-1", "1001")
        else:
            (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
            assert "is not consumed and comes again" in warning
            assert at.of(Code.CONSUMER_SEND_MSG_BACK) == []


async def test_a_broker_without_batches_gets_single_acknowledgements() -> None:
    async with scene() as at:
        at.broker.takes_batches = False
        at.broker.add(*(b"%d" % number for number in range(6)))
        deliveries = await at.consumer.receive(TOPIC, 32)
        async with trio.open_nursery() as nursery:
            for delivery in deliveries:
                nursery.start_soon(delivery.ack)
        offsets = sorted(AckMessage.from_command(request).offset for request in at.of(Code.ACK_MESSAGE))
        assert offsets == list(range(6))
        assert len(at.of(Code.BATCH_ACK_MESSAGE)) == 1


async def test_a_cancelled_receive_gives_its_messages_back() -> None:
    async with scene() as at:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.consumer.receive, TOPIC, 1, 60.0)
            await at.server.wait_seen(Code.POP_MESSAGE)
            nursery.cancel_scope.cancel()
        at.broker.add(b"late")
        await at.server.wait_seen(Code.CHANGE_MESSAGE_INVISIBLETIME)
        changed = ChangeInvisibleTime.from_command(at.of(Code.CHANGE_MESSAGE_INVISIBLETIME)[0])
        assert (changed.offset, changed.invisible_ms) == (0, 1)


async def test_no_more_handlers_run_than_at_once_and_no_more_messages_are_taken() -> None:
    async with scene() as at:
        at.broker.add(*(b"%d" % number for number in range(9)))
        release, started = trio.Event(), 0

        async def handle(message: MessageExt) -> None:
            nonlocal started
            started += 1
            if started == 3:
                await at.server.wait_seen(Code.POP_MESSAGE)
                assert len(at.broker.waiting) == 6
                release.set()
            await release.wait()
            if started == 9:
                await at.consumer.stop()

        with trio.fail_after(SECONDS):
            await at.consumer.run(TOPIC, handle, at_once=3)
        assert started == 9
        assert PopMessage.from_command(at.of(Code.POP_MESSAGE)[0]).max_msg_nums == 3


async def test_a_call_begins_while_the_message_before_it_is_acknowledged() -> None:
    async with scene() as at:
        at.broker.add(b"first", b"second")
        second_begun = trio.Event()

        async def answer_later(request: Command, peer: Peer) -> Command:
            await second_begun.wait()
            return success()

        at.server.on(Code.ACK_MESSAGE, answer_later)

        async def handle(message: MessageExt) -> None:
            if message.body == b"second":
                second_begun.set()
                await at.consumer.stop()

        with trio.fail_after(SECONDS):
            await at.consumer.run(TOPIC, handle, at_once=1)
        assert len(at.of(Code.ACK_MESSAGE)) == 2


async def test_an_ordered_pop_waits_for_the_acknowledgement_that_opens_its_queue() -> None:
    async with scene() as at:
        at.broker.add(b"first", b"second")
        pops_before: list[int] = []

        async def answer_later(request: Command, peer: Peer) -> Command:
            await trio.testing.wait_all_tasks_blocked()
            pops_before.append(len(at.of(Code.POP_MESSAGE)))
            return success()

        at.server.on(Code.ACK_MESSAGE, answer_later)

        async def handle(message: MessageExt) -> None:
            if message.body == b"second":
                await at.consumer.stop()

        with trio.fail_after(SECONDS):
            await at.consumer.run(TOPIC, handle, at_once=1, order=True)
        assert pops_before[0] == 1


async def test_a_stopped_run_gives_back_what_its_handlers_have() -> None:
    async with scene() as at:
        at.broker.add(b"slow")
        begun = trio.Event()

        async def handle(message: MessageExt) -> None:
            begun.set()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.consumer.run, TOPIC, handle)
            with trio.fail_after(SECONDS):
                await begun.wait()
                await at.consumer.stop(0)
        changed = ChangeInvisibleTime.from_command(at.of(Code.CHANGE_MESSAGE_INVISIBLETIME)[0])
        assert (changed.offset, changed.invisible_ms) == (0, 1)
        assert at.of(Code.ACK_MESSAGE) == []
        with pytest.raises(InvalidState, match="was stopped"):
            await at.consumer.run(TOPIC, handle)


async def test_messages_of_any_broker_are_found_and_idle_ones_only_report() -> None:
    async with scene("broker-a", "broker-b") as at:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def receive() -> None:
                deliveries = await at.consumer.receive(TOPIC, 32, wait=SECONDS)
                assert [delivery.message.body for delivery in deliveries] == [b"there"]
                assert deliveries[0].message.broker_name == "broker-b"

            for server in at.servers:
                await server.wait_seen(Code.NOTIFICATION)
            at.brokers[1].add(b"there")
        for server in at.servers:
            assert len(server.of(Code.NOTIFICATION)) == 1
            assert next(request.ext["pollTime"] for request in server.of(Code.POP_MESSAGE)) == "0"


async def test_a_broker_that_is_gone_holds_up_no_other() -> None:
    async with scene("broker-a", "broker-b") as at:
        await at.servers[0].stop()
        at.brokers[1].add(b"there")
        with trio.fail_after(SECONDS):
            deliveries = await at.consumer.receive(TOPIC, 32)
        assert [delivery.message.body for delivery in deliveries] == [b"there"]
        await at.servers[1].stop()
        with trio.fail_after(SECONDS), pytest.raises(RocketMQError):
            await at.consumer.receive(TOPIC, 32, wait=0)


async def test_a_broker_that_holds_too_many_polls_is_not_asked_without_a_pause() -> None:
    async with scene() as at:
        at.server.always(Code.POP_MESSAGE, lambda request, peer: PopAnswer(POLLING_FULL).to_command())
        assert await at.consumer.receive(TOPIC, wait=1.0) == []
        assert len(at.of(Code.POP_MESSAGE)) < 10


async def test_a_message_that_came_too_often_goes_to_the_dead_letters() -> None:
    async with scene(max_reconsume_times=3) as at:
        at.broker.tries = 4
        at.broker.add(b"bad")
        assert await at.consumer.receive(TOPIC, wait=0) == []
        await at.server.wait_seen(Code.ACK_MESSAGE)
        (sent_back,) = at.of(Code.CONSUMER_SEND_MSG_BACK)
        assert (sent_back.ext["offset"], sent_back.ext["delayLevel"], sent_back.ext["group"]) == ("1000", "-1", GROUP)


async def test_a_delivery_is_settled_once_and_not_after_its_time() -> None:
    async with scene() as at:
        at.broker.add(b"one", b"two")
        (first,) = await at.consumer.receive(TOPIC)
        async with first:
            await first.give_back(5)
        assert at.of(Code.ACK_MESSAGE) == []
        for again in (first.ack(), first.extend(5), first.give_back()):
            with pytest.raises(InvalidState, match="acknowledged or given back before"):
                await again
        (second,) = await at.consumer.receive(TOPIC, invisible=0.05)
        await until(lambda: second._is_over)
        with pytest.raises(InvalidState, match=r"invisible time of .* has ended"):
            await second.extend(5)
        await second.ack()


async def test_a_refused_acknowledgement_names_what_was_refused() -> None:
    async with scene() as at:
        at.broker.add(b"one")
        (delivery,) = await at.consumer.receive(TOPIC)
        at.server.on(Code.ACK_MESSAGE, lambda request, peer: refusal(208, "offset is illegal"))
        with pytest.raises(
            ResponseError, match=r"broker-a .*ACK_MESSAGE.*jobs/broker-a/0.*NO_MESSAGE.*offset is illegal"
        ):
            await delivery.ack()
        assert not delivery.is_settled
        await delivery.ack()


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("max_messages=0", {"max_messages": 0}),
    ("max_messages=33", {"max_messages": 33}),
    ("max_messages='1'", {"max_messages": "1"}),
    ("invisible=0", {"invisible": 0}),
    ("invisible=43201", {"invisible": 43_201}),
    ("wait=-1", {"wait": -1}),
    ("wait=True", {"wait": True}),
    ("order=1", {"order": 1}),
    ("exclude each other", {"tags": "a", "sql": "b = 1"}),
]


@pytest.mark.parametrize(("words", "arguments"), WRONG, ids=[words for words, _ in WRONG])
async def test_wrong_arguments_of_receive(words: str, arguments: dict[str, Any]) -> None:
    async with PopConsumer(GROUP, nameserver="127.0.0.1:1") as consumer:
        with pytest.raises(InvalidArgument, match=words):
            await consumer.receive(TOPIC, **arguments)


async def test_wrong_arguments_of_the_rest() -> None:
    async with PopConsumer(GROUP, nameserver="127.0.0.1:1") as consumer:
        wrong: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: consumer.receive("a topic"), "characters that RocketMQ does not take"),
            (lambda: consumer.receive("%RETRY%workers"), "retry topic"),
            (lambda: consumer.run(TOPIC, print, at_once=0), "at_once=0"),
            (lambda: consumer.run(TOPIC, None), "handler=None"),  # type: ignore[arg-type]
            (lambda: consumer.run(TOPIC, print, invisible=-1), "invisible=-1"),
        ]
        for call, words in wrong:
            with pytest.raises(InvalidArgument, match=words):
                await call()
    for settings, words in (
        ({"max_reconsume_times": -1}, "max_reconsume_times=-1"),
        ({"consume_timeout": 0}, "consume_timeout=0"),
        ({"stop_timeout": "x"}, "stop_timeout='x'"),
        ({"consume_from_where": ConsumeFromWhere.TIMESTAMP}, "consume_from_where=TIMESTAMP"),
    ):
        for face in (PopConsumer, blocking.PopConsumer, aio.PopConsumer):
            with pytest.raises(InvalidArgument, match=words):
                face(GROUP, nameserver="127.0.0.1:1", **settings)
    with pytest.raises(InvalidState):
        await PopConsumer(GROUP, nameserver="127.0.0.1:1").receive(TOPIC)
