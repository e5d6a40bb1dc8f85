"""A stream's offset as text, and the queues and messages that are new, gone or lost since it was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue, OffsetRange
from pyrmq_core.errors import DataLost
from pyrmq_spark.spark_errors import InvalidCheckpoint
from pyrmq_spark.stream.stream_offset import StreamOffset, all_lost, bounds_of_run, follow

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
QUEUES = st.builds(MessageQueue, st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=5)


@given(OFFSETS, OFFSETS)
def test_offsets_survive_the_checkpoint(offsets: dict[MessageQueue, int], began: dict[MessageQueue, int]) -> None:
    written = json.dumps(StreamOffset(offsets, began).to_json())
    read = StreamOffset.from_json(json.loads(written))
    assert read == StreamOffset(offsets, began)
    assert json.dumps(read.to_json()) == written


def test_the_text_does_not_depend_on_the_order_of_queues() -> None:
    """Spark compares it as text: another order would start batch after batch."""
    offset, other = StreamOffset({A: 1, B: 2, C: 3}), StreamOffset({C: 3, A: 1, B: 2})
    assert json.dumps(offset.to_json()) == json.dumps(other.to_json())


def test_the_text() -> None:
    assert json.dumps(StreamOffset({A: 7, B: 0}, {A: 5}).to_json()) == (
        '{"source": "rocketmq", "version": 1, "offsets": {"orders": {"broker-a": {"0": 7, "1": 0}}}, '
        '"from": {"orders": {"broker-a": {"0": 5}}}}'
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"orders": {"0": 5}}, "was not written by the source rocketmq"),
        ({}, "was not written by the source rocketmq"),
        (5, r"was not written by the source rocketmq.*\(it holds 5\)"),
        ([1, 2], "was not written by the source rocketmq"),
        ({"source": "rocketmq", "version": 2, "offsets": {}}, "has version 2, this pyrmq reads version 1"),
        ({"source": "rocketmq", "offsets": {}}, "has version None"),
        ({"source": "rocketmq", "version": 1}, "is damaged"),
        ({"source": "rocketmq", "version": 1, "offsets": {"t": {"b": {"x": 1}}}}, "is damaged"),
        ({"source": "rocketmq", "version": 1, "offsets": {"t": {"b": {"0": -1}}}}, "is damaged"),
        ({"source": "rocketmq", "version": 1, "offsets": {"t": {"b": {"0": "1"}}}}, "is damaged"),
        ({"source": "rocketmq", "version": 1, "offsets": {"t": 5}}, "is damaged"),
        ({"source": "rocketmq", "version": 1, "offsets": {}, "from": 1}, "is damaged"),
    ],
)
def test_a_checkpoint_of_another_make_is_reported(given: object, reason: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=reason):
        StreamOffset.from_json(given)


# --- Following queues


def test_reading_goes_on_where_it_ended() -> None:
    followed = follow({A: 5, B: 9}, {A: OffsetRange(0, 8), B: OffsetRange(3, 9)}, {})
    assert (followed.begins, followed.backlog, followed.losses) == ({A: 5, B: 9}, {A: 3}, ())


def test_a_new_queue_begins_at_its_beginning() -> None:
    followed = follow({A: 5}, {A: OffsetRange(0, 5), B: OffsetRange(2, 6)}, {})
    assert (followed.begins, followed.backlog, followed.losses) == ({A: 5, B: 2}, {B: 4}, ())


def test_expired_offsets_are_lost_and_the_rest_is_read() -> None:
    followed = follow({A: 5}, {A: OffsetRange(7, 10)}, {})
    assert followed.backlog == {A: 3}
    (loss,) = followed.losses
    assert (loss.queue, loss.start, loss.end, loss.min_offset, loss.max_offset) == (A, 5, 7, 7, 10)
    assert str(loss) == "offsets 5 to 7 of orders/broker-a/0 have expired: its broker keeps 7 to 10"


def test_a_queue_that_became_shorter_goes_on_at_its_end() -> None:
    """Spark's Kafka source does the same: the kept messages were read already, unless the topic was made anew."""
    followed = follow({A: 50}, {A: OffsetRange(0, 10)}, {})
    assert (followed.begins, followed.backlog) == ({A: 10}, {})
    (loss,) = followed.losses
    assert (loss.start, loss.end, loss.min_offset, loss.max_offset) == (10, 50, 0, 10)
    assert "read up to offset 50, but its broker keeps 0 to 10: the topic was deleted and made" in str(
        followed.losses[0]
    )


def test_a_queue_that_is_gone_leaves() -> None:
    followed = follow({A: 5, B: 6}, {A: OffsetRange(0, 5)}, {B: "deleted"})
    assert followed.begins == {A: 5}
    assert str(followed.losses[0]) == "orders/broker-a/1 is gone after offset 6: deleted"


def test_several_losses_are_reported_together() -> None:
    losses = follow({A: 5, B: 6}, {}, {A: "deleted", B: "deleted"}).losses
    assert str(all_lost(losses)) == (
        "orders/broker-a/0 is gone after offset 5: deleted; orders/broker-a/1 is gone after offset 6: deleted. "
        "Set failOnDataLoss=false to go on with what is left"
    )


def test_a_run_ends_where_it_was_to_end() -> None:
    assert bounds_of_run({A: 5}, {A: OffsetRange(0, 9), B: OffsetRange(0, 3)}) == {A: OffsetRange(0, 5)}


def test_a_run_whose_queues_are_gone_or_shorter_fails_by_name() -> None:
    with pytest.raises(DataLost, match="began with queues that are gone now: orders/broker-a/1"):
        bounds_of_run({A: 5, B: 5}, {A: OffsetRange(0, 9)})
    with pytest.raises(DataLost, match="was to read orders/broker-a/0 up to offset 5, but it now ends at 2"):
        bounds_of_run({A: 5}, {A: OffsetRange(0, 2)})
