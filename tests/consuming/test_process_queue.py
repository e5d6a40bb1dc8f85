"""`ProcessQueue` beside a plain list of offsets, in every order of finishing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageExt, MessageQueue
from pyrmq_core.client.consumer.consume.process_queue import FlowLimits, ProcessQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGE = MessageExt("orders", "broker-a", 0, 0, b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")


def message(offset: int, size: int = 1) -> MessageExt:
    return replace(MESSAGE, queue_offset=offset, body=b"x" * size)


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 5), max_size=5), st.integers(0, 4)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_offset_to_commit_is_the_lowest_that_is_not_consumed(steps, random) -> None:  # type: ignore[no-untyped-def]
    process_queue, position = ProcessQueue(QUEUE, 10), 10
    unfinished: dict[int, MessageExt] = {}
    batch: list[MessageExt] = []
    for sizes, passed_over in steps:
        messages = []
        for size in sizes:
            position += random.randrange(3)  # a filter passes over some
            messages.append(message(position, size))
            position += 1
        position += passed_over
        process_queue.put(messages, position)
        unfinished.update({item.queue_offset: item for item in messages})
        batch += process_queue.take(random.randrange(4))
        random.shuffle(batch)
        while batch and random.random() < 0.6:
            done = batch.pop()
            process_queue.finish([done])
            process_queue.finish([done])  # twice changes nothing
            del unfinished[done.queue_offset]
        assert len(process_queue) == len(unfinished)
        assert process_queue.bytes == sum(len(item.body) for item in unfinished.values())
        assert process_queue.offset_to_commit == min(unfinished, default=position)


def test_messages_are_taken_in_order_and_again_when_given_back() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([message(offset) for offset in range(5)], 5)
    first = process_queue.take(2)
    assert [item.queue_offset for item in first] == [0, 1]
    process_queue.give_back(first)
    assert [item.queue_offset for item in process_queue.take(10)] == [0, 1, 2, 3, 4]
    assert process_queue.take(1) == []
    assert process_queue.offset_to_commit == 0


def test_it_is_full_by_messages_bytes_or_span() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([message(0, 100), message(7, 100)], 8)
    assert process_queue.has_room(FlowLimits(messages=2, bytes=200, span=7))
    assert not process_queue.has_room(FlowLimits(messages=1, bytes=200, span=7))
    assert not process_queue.has_room(FlowLimits(messages=2, bytes=199, span=7))
    assert not process_queue.has_room(FlowLimits(messages=2, bytes=200, span=6))
    assert process_queue.has_room(FlowLimits(messages=2, bytes=200, span=None))


def test_a_queue_that_is_dropped_takes_nothing_and_keeps_its_offset() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([message(offset) for offset in range(3)], 3)
    first = process_queue.take(1)
    process_queue.drop()
    process_queue.put([message(offset) for offset in range(3, 40)], 40)
    process_queue.give_back(process_queue.take(1))
    assert not process_queue.waiting
    assert (process_queue.position, process_queue.offset_to_commit) == (3, 0)
    process_queue.finish(first)
    process_queue.give_back(first)
    assert not process_queue.waiting
    assert process_queue.offset_to_commit == 1
