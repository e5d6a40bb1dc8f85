"""Jobs of a client on every cluster, ours and RocketMQ's own; subclasses supply the NameServer fixture."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import trio

from pyrmq_core import (
    Admin,
    AnyQueue,
    Client,
    InvalidMessage,
    KeyedQueue,
    Message,
    MessageExt,
    MessageQueue,
    NoRoute,
    OffsetRange,
    Producer,
    PullConsumer,
    PullStatus,
    QueueNotFound,
    SendResult,
    SendStatus,
    decode,
    encode_batch,
    encode_one,
    unique_ids,
)
from pyrmq_core import blocking as threads
from tests.support.proxies import administered

READABLE_SECONDS = 60.0


@pytest.fixture
def topic() -> str:
    """A topic that no test has used."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def client(nameserver: str) -> AsyncIterator[Client]:
    async with Client(nameserver=nameserver) as client:
        yield client


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with Producer("g_producer", client=client, send_timeout=15) as producer:
        yield producer


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer(f"g_{uuid.uuid4().hex[:8]}", client=client, timeout=15) as consumer:
        yield consumer


async def stored_in(consumer: PullConsumer, topic: str, count: int) -> list[MessageExt]:
    """Returns all messages of the topic when `count` are readable, in the order of their queues and offsets."""
    bounds: dict[MessageQueue, OffsetRange] = {}
    with trio.fail_after(READABLE_SECONDS):
        while sum(len(bound) for bound in bounds.values()) < count:
            await trio.sleep(0.02)
            with suppress(NoRoute):  # 4.9 announces a new topic after it has answered the send
                bounds = await consumer.offset_bounds(await consumer.message_queues(topic))
    messages: list[MessageExt] = []
    for queue, bound in bounds.items():
        async with consumer.read(queue, bound.start, bound.end) as pulls:
            async for pull in pulls:
                messages += decode(pull, OffsetRange(pull.start, pull.next_offset))
    return messages


async def readable(consumer: PullConsumer, queue: MessageQueue, count: int) -> None:
    """Returns when the queue's maximum is `count`."""
    with trio.fail_after(READABLE_SECONDS):
        while await consumer.max_offset(queue) < count:  # noqa: ASYNC110 - a broker sets no event here
            await trio.sleep(0.02)


async def make_everywhere(producer: Producer, consumer: PullConsumer, topic: str) -> int:
    """Sends until the topic's route has every broker; returns how many messages that took."""
    brokers = {queue.broker_name: queue for queue in await producer.message_queues(topic)}
    for queue in brokers.values():
        await producer.send(Message(topic, b"make it"), queue=queue)
    announced: set[str] = set()
    with trio.fail_after(READABLE_SECONDS):
        while announced != brokers.keys():
            await trio.sleep(0.02)
            with suppress(NoRoute):  # 4.9 announces a new topic after it has answered the send, each broker by itself
                announced = {queue.broker_name for queue in await consumer.message_queues(topic)}
    return len(brokers)


class ClientJobs:
    """Each test writes to a topic of its own, which the brokers create when it is first sent to."""

    async def test_one_message_comes_back_as_it_went(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        sent = Message(
            topic,
            "grüße \u2603".encode(),
            tags="paid",
            keys=["k1", "k2"],
            properties={"colour": "grün", "empty not": "-"},
            flag=7,
        )
        before = datetime.now(UTC) - timedelta(seconds=1)
        result = await producer.send(sent)
        assert result.status is SendStatus.SEND_OK
        (stored,) = await stored_in(consumer, topic, 1)
        assert stored.body == sent.body
        assert (stored.tags, stored.keys, stored.flag) == ("paid", "k1 k2", 7)
        assert {name: stored.properties[name] for name in sent.properties} == sent.properties
        assert stored.msg_id == stored.properties["UNIQ_KEY"] == result.msg_id
        assert stored.offset_msg_id == result.offset_msg_id
        assert MessageQueue(topic, stored.broker_name, stored.queue_id) == result.message_queue
        assert stored.queue_offset == result.queue_offset == 0
        assert before <= stored.born_timestamp <= stored.store_timestamp + timedelta(seconds=1)

    async def test_an_unknown_topic_is_made_by_the_first_send(self, producer: Producer, topic: str) -> None:
        first = await producer.send(Message(topic, b"first"))
        assert 0 <= first.message_queue.queue_id < 4
        results = [await producer.send(Message(topic, b"%d" % number)) for number in range(16)]
        queues = await producer.message_queues(topic)
        assert {result.message_queue for result in results} <= set(queues)
        by_broker = {queue.broker_name: 0 for queue in queues}
        for queue in queues:
            by_broker[queue.broker_name] += 1
        assert set(by_broker.values()) == {4}

    async def test_brokers_that_make_a_topic_get_some_each(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        results = [await producer.send(Message(topic, b"%d" % number)) for number in range(60)]
        brokers = {result.message_queue.broker_name for result in results}
        assert len(brokers) == 2
        assert len(await stored_in(consumer, topic, 60)) == 60
        assert {queue.broker_name for queue in await consumer.message_queues(topic)} == brokers

    async def test_a_topic_that_shrank_takes_what_is_sent_by_the_old_route(
        self, client: Client, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        """No message is lost or counted as refused, whatever its target; a queue that is named is a named error."""
        async with Admin(nameserver=administered(client._session.nameservers.addresses[0]), timeout=20) as admin:
            await admin.create_topic(topic, queues=8)
            old = await producer.message_queues(topic)
            assert len(old) == 16
            await admin.create_topic(topic, queues=1)
        assert await producer.message_queues(topic) == old
        with pytest.raises(QueueNotFound, match=r"it has 0 to 0 there: .* request queueId\[7\] is illegal"):
            await producer.send(Message(topic, b"named"), queue=old[7])
        async with producer.open_window(keep_refused=True) as window:
            for number, queue in enumerate(old):
                to = KeyedQueue(f"key {number}", (queue,)) if number % 2 else AnyQueue(queue, keep=True)
                batch = [Message(topic, b"%d" % index) for index in range(5)]
                await window.put(encode_batch(batch, unique_ids(5)), to)
            summary = await window.drain()
            assert window.take_refused() == []
        assert (summary.messages, summary.perhaps_repeated) == (80, 0)
        assert {queue.queue_id for queue in summary.messages_by_queue} == {0}
        assert len(await stored_in(consumer, topic, 80)) == 80

    async def test_many_first_sends_at_once(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        pending = [await producer.send_soon(Message(topic, b"%d" % number)) for number in range(100)]
        results = [await send.wait() for send in pending]
        stored = await stored_in(consumer, topic, 100)
        assert {message.msg_id for message in stored} == {result.msg_id for result in results}
        assert len(stored) == 100

    async def test_queues_keys_and_functions_choose(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        already = await make_everywhere(producer, consumer, topic)
        queues = await producer.message_queues(topic)
        chosen = queues[-1]
        given = [await producer.send(Message(topic, b"given"), queue=chosen) for _ in range(3)]
        assert {result.message_queue for result in given} == {chosen}
        selected = await producer.send(Message(topic, b"selected"), select=lambda all_queues, _: all_queues[0])
        assert selected.message_queue == queues[0]
        keyed = [await producer.send(Message(topic, b"%d" % n, sharding_key="order-1")) for n in range(5)]
        assert len({result.message_queue for result in keyed}) == 1
        stored = await stored_in(consumer, topic, already + 9)
        in_order = [message.body for message in stored if message.sharding_key == "order-1"]
        assert in_order == [b"0", b"1", b"2", b"3", b"4"]

    async def test_one_way_messages_arrive(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        await producer.send(Message(topic, b"make it"))
        for number in range(20):
            await producer.send_oneway(Message(topic, b"%d" % number))
        stored = await stored_in(consumer, topic, 21)
        assert {message.body for message in stored} == {b"make it", *(b"%d" % number for number in range(20))}

    async def test_a_batch_of_1000_is_1000_messages(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        batch = [
            Message(
                topic, b"body %d" % number, tags=f"tag{number % 3}", keys=f"key{number}", properties={"n": f"{number}"}
            )
            for number in range(1000)
        ]
        results = await producer.send_batch(batch)
        assert [result.queue_offset for result in results] == list(range(1000))
        assert len({result.message_queue for result in results}) == 1
        stored = await stored_in(consumer, topic, 1000)
        assert len(stored) == 1000
        for number, (message, result) in enumerate(zip(stored, results, strict=True)):
            assert message.body == b"body %d" % number
            assert (message.tags, message.keys) == (f"tag{number % 3}", f"key{number}")
            assert message.properties["n"] == str(number)
            assert message.msg_id == message.properties["UNIQ_KEY"] == result.msg_id
            assert message.offset_msg_id == result.offset_msg_id
            assert message.queue_offset == result.queue_offset
        assert len({message.msg_id for message in stored}) == 1000

    async def test_a_large_batch_is_divided_in_order(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        batch = [Message(topic, b"%6d" % number + b"x" * 20_000) for number in range(300)]
        results = await producer.send_batch(batch)
        stored = await stored_in(consumer, topic, 300)
        assert [message.body for message in stored] == [message.body for message in batch]
        assert [message.msg_id for message in stored] == [result.msg_id for result in results]

    @pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
    async def test_compressed_bodies_come_back_plain(
        self, client: Client, consumer: PullConsumer, topic: str, compression: str
    ) -> None:
        body = b"".join(b"line %d\n" % number for number in range(5000))
        async with Producer(f"g_{compression}", client=client, compression=compression, send_timeout=15) as producer:
            await producer.send(Message(topic, body))
        (stored,) = await stored_in(consumer, topic, 1)
        assert stored.body == body
        assert stored.store_size < len(body) / 2
        assert stored.sys_flag & 1

    async def test_the_largest_body_passes_and_no_larger_one(
        self, client: Client, consumer: PullConsumer, topic: str
    ) -> None:
        limit = 4 * 1024 * 1024
        async with Producer("g_large", client=client, compression="none", send_timeout=30) as producer:
            await producer.send(Message(topic, b"x" * (limit - 1024)))
            with pytest.raises(InvalidMessage, match="4194304 at most"):
                await producer.send(Message(topic, b"x" * (limit + 1)))
        (stored,) = await stored_in(consumer, topic, 1)
        assert len(stored.body) == limit - 1024

    async def test_a_window_of_batches(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        already = await make_everywhere(producer, consumer, topic)
        async with producer.open_window(max_requests=4, timeout=30) as window:
            for start in range(0, 20_000, 500):
                batch = [Message(topic, b"%d" % number) for number in range(start, start + 500)]
                await window.put(encode_batch(batch, unique_ids(500)), AnyQueue())
            keyed = [encode_one(Message(topic, b"k%d" % n), unique_ids(1)[0]) for n in range(20)]
            for payload in keyed:
                await window.put(payload, KeyedQueue("order-1"))
            summary = await window.drain()
        assert (summary.messages, summary.requests, summary.perhaps_repeated) == (20_020, 60, 0)
        everything = await stored_in(consumer, topic, already + 20_020)
        stored = [message for message in everything if message.body != b"make it"]
        assert {message.body for message in stored} == {
            *(b"%d" % number for number in range(20_000)),
            *(b"k%d" % number for number in range(20)),
        }
        per_queue: dict[MessageQueue, int] = {}
        for message in stored:
            queue = MessageQueue(topic, message.broker_name, message.queue_id)
            per_queue[queue] = per_queue.get(queue, 0) + 1
        assert per_queue == summary.messages_by_queue
        assert [m.body for m in stored if m.body.startswith(b"k")] == [b"k%d" % number for number in range(20)]

    async def test_pulls_and_their_outcomes(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        results = await producer.send_batch(
            [Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd") for number in range(100)]
        )
        queue = results[0].message_queue
        await readable(consumer, queue, 100)
        result = await consumer.pull(queue, 10, max_messages=5)
        assert [message.body for message in result.messages] == [b"10", b"11", b"12", b"13", b"14"]
        assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (
            PullStatus.FOUND,
            15,
            0,
            100,
        )
        assert len((await consumer.pull(queue, 0, max_messages=1000)).messages) == 32
        odd = await consumer.pull(queue, 0, tags="odd || nobody")
        assert [message.body for message in odd.messages][:3] == [b"1", b"3", b"5"]
        assert (await consumer.pull(queue, 100)).status is PullStatus.NO_NEW_MSG
        beyond = await consumer.pull(queue, 5000)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 100)
        unmatched = await consumer.pull(queue, 0, tags="nobody")
        assert (unmatched.status, unmatched.messages, unmatched.next_offset) == (PullStatus.NO_MATCHED_MSG, (), 100)

    async def test_a_waiting_pull_is_woken(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        queue = (await producer.send(Message(topic, b"first"))).message_queue
        await readable(consumer, queue, 1)
        woken: list[bytes] = []

        async def wait() -> None:
            began = trio.current_time()
            pulled = await consumer.pull(queue, 1, wait=30)
            woken.extend(message.body for message in pulled.messages)
            assert trio.current_time() - began < 20

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.5)
            await producer.send(Message(topic, b"second"), queue=queue)
        assert woken == [b"second"]

    async def test_ranges_are_read_whole(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        queue = (await producer.send(Message(topic, b"0", tags="t0"))).message_queue
        batch = [Message(topic, b"%d" % number, tags=f"t{number % 10}") for number in range(1, 5000)]
        await producer.send_batch(batch, queue=queue)
        await readable(consumer, queue, 5000)

        async def bodies(start: int, end: int, tags: str = "*") -> list[int]:
            numbers: list[int] = []
            async with consumer.read(queue, start, end, tags=tags) as pulls:
                async for pull in pulls:
                    numbers += [
                        int(message.body) for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
                    ]
            return numbers

        assert await bodies(0, 5000) == list(range(5000))
        assert await bodies(123, 4321) == list(range(123, 4321))
        assert await bodies(0, 5000, tags="t3") == list(range(3, 5000, 10))
        assert await bodies(4990, 5000, tags="t0 || t1") == [4990, 4991]

    async def test_offsets_of_times(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        """Before the first, between two, after the last; the same on both generations."""
        queue = (await producer.send(Message(topic, b"0"))).message_queue
        for number in range(1, 5):
            await trio.sleep(0.05)
            await producer.send(Message(topic, b"%d" % number), queue=queue)
        await readable(consumer, queue, 5)
        times = [message.store_timestamp for message in (await consumer.pull(queue, 0)).messages]
        assert len(times) == 5
        for offset, time in enumerate(times):
            assert await consumer.offset_at(queue, time) == offset
            assert await consumer.offset_at(queue, time - timedelta(milliseconds=1)) == offset
            assert await consumer.offset_at(queue, time + timedelta(milliseconds=1)) == offset + 1
        assert await consumer.offset_at(queue, times[0] - timedelta(days=1)) == 0
        assert await consumer.offset_at(queue, times[-1] + timedelta(days=1)) == 5
        assert await consumer.offset_bounds([queue]) == {queue: OffsetRange(0, 5)}

    async def test_a_group_commits(
        self, producer: Producer, consumer: PullConsumer, topic: str, nothing_committed: Sequence[int | None]
    ) -> None:
        """An unknown group is created by its first commit."""
        queue = (await producer.send(Message(topic, b"0"))).message_queue
        await readable(consumer, queue, 1)
        assert await consumer.committed(queue) in nothing_committed
        await consumer.commit(queue, 1)
        assert await consumer.committed(queue) == 1
        await consumer.commit(queue, 0)
        assert await consumer.committed(queue) == 0

    async def test_the_nameserver_lists_the_topic(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        await producer.send(Message(topic, b"x"))
        with trio.fail_after(READABLE_SECONDS):
            while topic not in await consumer.topics():  # noqa: ASYNC110 - a NameServer sets no event here
                await trio.sleep(0.05)

    def test_threads_do_the_same(self, nameserver: str, topic: str) -> None:
        with threads.Client(nameserver=nameserver) as client:
            with threads.Producer("g_threads", client=client, send_timeout=15) as producer:
                futures = [producer.send_soon(Message(topic, b"%d" % number)) for number in range(200)]
                results: list[SendResult] = [future.result(30) for future in futures]
            with threads.PullConsumer("g_threads", client=client, timeout=15) as consumer:
                last: dict[MessageQueue, int] = {}
                for result in results:
                    queue = result.message_queue
                    last[queue] = max(last.get(queue, 0), result.queue_offset + 1)
                bodies: list[bytes] = []
                for queue, end in last.items():
                    with consumer.read(queue, 0, end) as pulls:  # waits for what is not readable yet
                        for pull in pulls:
                            bodies += [
                                message.body for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
                            ]
        assert sorted(bodies) == sorted(b"%d" % number for number in range(200))
