"""`Producer`: the messages sent, the parts they travel in, the results, and its beginning and end."""

import contextlib
import random
import sys
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    BatchFailed,
    Client,
    InvalidArgument,
    InvalidMessage,
    InvalidState,
    Message,
    MessageQueue,
    MissingLibrary,
    NoRoute,
    Outcome,
    Producer,
    RocketMQError,
    SendFailed,
    SendResult,
)
from pyrmq_core.model import SendStatus
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.heartbeat import UnregisterClient
from tests.support.scripted import BATCH, ROUTE, SEND, later, refuse, silence
from tests.support.stage import Stage, settled

B3 = MessageQueue("orders", "broker-b", 3)

# --- One message


async def test_what_comes_back_says_where_it_is(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        result = await producer.send(Message("orders", b"x", tags="paid", keys=["a", "b"]), queue=B3)
    assert result.status is SendStatus.SEND_OK
    assert result.message_queue == B3
    assert result.queue_offset == 0
    (stored,) = stage.stores["broker-b"].queues["orders", 3]
    assert stored.unique_id == result.msg_id
    assert decode_properties(stored.properties) == {
        "UNIQ_KEY": result.msg_id,
        "WAIT": "true",
        "TAGS": "paid",
        "KEYS": "a b",
    }
    assert result.offset_msg_id.startswith("7F000001")


async def test_a_function_chooses_the_queue(stage: Stage, client: Client) -> None:
    """The selector gets the publish list in RocketMQ's order, and the message; then there is one try."""
    given: list[int] = []

    def by_body(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        given.extend(queue.queue_id for queue in queues)
        return queues[int(message.body)]

    async with Producer("g", client=client) as producer:
        result = await producer.send(Message("orders", b"6"), select=by_body)
    assert given == [0, 1, 2, 3, 0, 1, 2, 3]
    assert result.message_queue == MessageQueue("orders", "broker-b", 2)


async def test_queue_and_select_together_are_refused(client: Client) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(InvalidArgument, match="give queue or select, not both"):
            await producer.send(Message("orders", b"x"), queue=B3, select=lambda queues, _: queues[0])


async def test_a_sharding_key_keeps_its_queue(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        for _ in range(3):
            await producer.send(Message("orders", b"x", sharding_key="order-1"))
    assert len(stage.stores["broker-b"].queues["orders", 2]) == 3
    assert decode_properties(stage.stored("orders")[0].properties)["__SHARDINGKEY"] == "order-1"


async def test_asking_for_the_queues_counts_in_the_time(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    stage.nameserver.on(ROUTE, later(2.0, stage.table))
    for server in stage.brokers.values():
        server.always(SEND, silence)
    began = trio.current_time()
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("orders", b"x"), select=lambda queues, _: queues[0], timeout=3)
        assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_large_bodies_are_compressed(stage: Stage, client: Client, compression: str) -> None:
    async with Producer("g", client=client, compression=compression, compress_body_over_bytes=100) as producer:
        await producer.send(Message("orders", b"s" * 99))
        await producer.send(Message("orders", b"l" * 100))
    small, large = sorted(stage.stored("orders"), key=lambda stored: stored.sys_flag)
    assert (small.body, small.sys_flag) == (b"s" * 99, 0)
    assert large.body != b"l" * 100
    assert large.sys_flag & 1
    assert decompress(large.body, large.sys_flag, max_bytes=1000) == b"l" * 100


@pytest.mark.parametrize(("library", "compression"), [("lz4.frame", "lz4"), ("zstandard", "zstd")])
def test_a_compression_that_is_not_installed_is_reported_when_it_is_given(
    monkeypatch: pytest.MonkeyPatch, library: str, compression: str
) -> None:
    """Not when the first large body comes."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingLibrary, match=rf'pip install "pyrmq-spark\[{compression}\]"'):
        Producer("g", nameserver="127.0.0.1:1", compression=compression)


async def test_compression_can_be_switched_off(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, compression="none", compress_body_over_bytes=1) as producer:
        await producer.send(Message("orders", b"x" * 5000))
    assert stage.stored("orders")[0].body == b"x" * 5000


# --- Batches


def messages(count: int, size: int = 100) -> list[Message]:
    return [Message("orders", b"%d|" % number + b"x" * size, keys=str(number)) for number in range(count)]


async def test_a_batch_is_one_request_in_one_queue(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch(messages(1000))
    ((_, request),) = stage.sends()
    assert request.batch
    assert request.properties in (None, "")  # a UNIQ_KEY of the request would hide every message's own
    (queue,) = {result.message_queue for result in results}
    stored = stage.stores[queue.broker_name].queues["orders", queue.queue_id]
    assert [(message.unique_id, index) for index, message in enumerate(stored)] == [
        (result.msg_id, result.queue_offset) for result in results
    ]
    assert [decode_properties(message.properties)["KEYS"] for message in stored] == [
        str(number) for number in range(1000)
    ]
    assert len({result.offset_msg_id for result in results}) == 1000


async def test_a_large_batch_is_divided_and_stays_in_one_queue(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch(messages(300, size=10_000))
    requests = stage.brokers["broker-a"].of(BATCH) + stage.brokers["broker-b"].of(BATCH)
    assert len(requests) == 3
    assert all(len(request.body) <= 1024 * 1024 for request in requests)
    (queue,) = {result.message_queue for result in results}
    assert [result.queue_offset for result in results] == list(range(300))
    bodies = [stored.body for stored in stage.stores[queue.broker_name].queues["orders", queue.queue_id]]
    assert bodies == [message.body for message in messages(300, size=10_000)]


async def test_a_partly_failed_batch_says_which_parts(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, refuse(13, "too large"))
    broker_b = stage.brokers["broker-b"]
    broker_b.on(BATCH, stage.stores["broker-b"])  # the first part is stored
    async with Producer("g", client=client) as producer:
        with pytest.raises(BatchFailed, match=r"part 2 of 4 of the batch failed: 1 parts stored") as caught:
            await producer.send_batch(messages(400, size=10_000), queue=B3)
    error = caught.value
    stored, failed, *unsent = error.parts
    assert isinstance(stored, Sequence)
    assert all(isinstance(result, SendResult) for result in stored)
    assert len(stage.stored("orders")) == len(stored)
    assert isinstance(failed, SendFailed)
    assert failed.outcome is Outcome.NOT_STORED
    assert [type(part) for part in unsent] == [SendFailed, SendFailed]
    assert {part.outcome for part in unsent if isinstance(part, SendFailed)} == {Outcome.NOT_STORED}
    assert error.outcome is Outcome.PERHAPS_STORED  # the whole batch: a part of it is
    assert error.attempts == failed.attempts
    assert "too large" in str(error)


async def test_a_small_failed_batch_is_a_failed_send(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(BATCH, refuse(14))
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed, match="3 messages not stored, it is safe to send again") as caught:
            await producer.send_batch(messages(3))
    assert not isinstance(caught.value, BatchFailed)
    assert len(caught.value.attempts) == 3


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([], "at least one message"),
        ([Message("orders", b"x"), Message("audit", b"x")], "one topic"),
        ([Message("orders", b"x", delay_level=3)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topics"),
    ],
)
async def test_what_cannot_be_a_batch_is_refused(
    stage: Stage, client: Client, batch: list[Message], reason: str
) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(InvalidMessage, match=reason):
            await producer.send_batch(batch)
    assert stage.sends() == []


# --- Beginning and end


@pytest.mark.parametrize("group", ["", "with space", "DEFAULT_PRODUCER", "x" * 256, "grüße"])
def test_a_bad_group_is_refused_at_once(group: str) -> None:
    with pytest.raises(InvalidArgument, match="group"):
        Producer(group)


@pytest.mark.parametrize(
    "settings",
    [
        {"send_timeout": 0},
        {"send_timeout": -1},
        {"send_timeout": float("nan")},
        {"max_in_flight": 0},
        {"max_in_flight_bytes": 0},
        {"compression": "rar"},
        {"nameserver": "nowhere"},
    ],
)
def test_a_bad_setting_is_refused_at_once(settings: dict[str, object]) -> None:
    (name,) = settings
    words = {"nameserver": "NameServer address 'nowhere'"}
    with pytest.raises(InvalidArgument, match=words.get(name, f"{name}=")):
        Producer("g", **settings)  # type: ignore[arg-type]


async def test_a_bad_timeout_of_one_send_is_refused(client: Client) -> None:
    async with Producer("g", client=client) as producer:
        for timeout in (0, -3.0):
            with pytest.raises(InvalidArgument, match=f"timeout={timeout:g}"):
                await producer.send(Message("orders", b"x"), timeout=timeout)


async def test_outside_its_block_a_producer_does_nothing(stage: Stage) -> None:
    producer = Producer("g", nameserver=stage.nameserver.address)
    message = Message("orders", b"x")

    async def every_call_is_refused() -> None:
        for call in (
            producer.send,
            producer.send_oneway,
            producer.send_soon,
        ):
            with pytest.raises(InvalidState, match=r"\bg\b"):
                await call(message)
        with pytest.raises(InvalidState):
            await producer.send_batch([message])
        with pytest.raises(InvalidState):
            await producer.message_queues("orders")
        with pytest.raises(InvalidState):
            producer.open_window()

    await every_call_is_refused()
    async with producer:
        await producer.send(message)
    await every_call_is_refused()
    with pytest.raises(InvalidState):
        await producer.__aenter__()


async def test_one_client_holds_one_producer_a_group(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client):
        second = Producer("g", client=client)
        with pytest.raises(InvalidState, match=r"producer group\[g\] has been created before"):
            await second.__aenter__()
    async with second as producer:  # free again
        await producer.send(Message("orders", b"x"))


async def test_a_shared_client_and_an_own_nameserver_do_not_go_together(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="shared client"):
        Producer("g", client=client, nameserver="a:1")


async def test_leaving_unregisters_the_group(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await stage.heard_of()
        assert not unregistered(stage)
    assert [(command.client_id, command.producer_group) for command in unregistered(stage)] == [
        (client.client_id, "g")
    ] * 2


async def test_leaving_does_not_wait_for_a_silent_broker(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(RequestCode.UNREGISTER_CLIENT, silence)
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await stage.heard_of("broker-a")
        began = trio.current_time()
    assert trio.current_time() - began <= 3.1


def unregistered(stage: Stage) -> list[UnregisterClient]:
    commands: list[Command] = []
    for server in stage.brokers.values():
        commands += server.of(RequestCode.UNREGISTER_CLIENT)
    return [UnregisterClient.from_command(command) for command in commands]


async def test_many_producers_and_failures_leave_no_task_behind(stage: Stage, client: Client) -> None:
    async with Producer("warm", client=client) as producer:
        for broker in stage.brokers:
            await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", broker, 0))
        await stage.heard_of()
    await settled()
    before = tasks_below(trio.lowlevel.current_root_task())
    for number in range(20):
        stage.brokers[random.choice(["broker-a", "broker-b"])].on(SEND, refuse(13))
        with contextlib.suppress(SendFailed, ZeroDivisionError):
            async with Producer(f"g{number}", client=client) as producer:
                await producer.send_soon(Message("orders", b"x"))
                await producer.send(Message("orders", b"x"))
                _ = 1 / 0
    with trio.fail_after(30):
        while tasks_below(trio.lowlevel.current_root_task()) != before:
            await settled()


def tasks_below(task: trio.lowlevel.Task | None) -> list[str]:
    """Returns the names of all tasks but connections' writers, which begin when they are first needed."""
    assert task is not None
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    names = [name for child in children for name in tasks_below(child)]
    return sorted([*names, task.name] if not task.name.endswith("._write") else names)


async def test_a_topic_without_route_is_named(client: Client) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(NoRoute, match="No route info of this topic: nobody_made_this") as caught:
            await producer.send(Message("nobody_made_this", b"x"))
    error: RocketMQError = caught.value
    assert error.outcome is Outcome.NOT_STORED
    assert error.attempts == ()
