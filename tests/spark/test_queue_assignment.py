"""The queue of a row by its columns, decided for whole columns: equal to the choice message by message."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidMessage, KeyedQueue, MessageQueue, ThisQueue, TopicPublishInfo
from pyrmq_core.columnar import check
from pyrmq_spark.write.queue_assignment import BY_TURNS, Fixed, _TopicPlaces
from pyrmq_spark.write.rows import by_batch

QUEUES = [MessageQueue("orders", broker, number) for broker in ("broker-a", "broker-b") for number in range(3)]


def places() -> _TopicPlaces:
    return _TopicPlaces(TopicPublishInfo("orders", QUEUES, counter_start=0))


def queues_of(topic_places: _TopicPlaces, rows: pa.RecordBatch) -> list[MessageQueue | None]:
    lanes = topic_places.lanes(rows)
    assert lanes is not None
    return [None if lane == BY_TURNS else queue_of(topic_places.fixed[lane]) for lane in lanes]


def queue_of(target: Fixed) -> MessageQueue:
    return target.queue if isinstance(target, ThisQueue) else target.queues[0]


@given(st.lists(st.one_of(st.none(), st.text(min_size=1)), min_size=1))
def test_a_key_has_the_queue_that_java_gives_it(keys: list[str | None]) -> None:
    info = TopicPublishInfo("orders", QUEUES, counter_start=0)
    rows = pa.record_batch({"shardingKey": pa.array(["known", *keys], pa.string())})
    expected = [None if key is None else info.queue_of_key(key) for key in keys]
    assert queues_of(places(), rows)[1:] == expected


def test_a_queue_wins_over_a_key_and_null_is_neither() -> None:
    rows = pa.record_batch(
        {
            "shardingKey": pa.array(["j", "j", None, None]),
            "brokerName": pa.array(["broker-b", None, "broker-a", None]),
            "queueId": pa.array([2, None, 1, None], pa.int32()),
        }
    )
    of_key = TopicPublishInfo("orders", QUEUES, counter_start=0).queue_of_key("j")
    assert of_key != QUEUES[5]
    assert queues_of(places(), rows) == [QUEUES[5], of_key, QUEUES[1], None]


def test_a_null_among_the_values_of_a_dictionary_is_no_key() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int32()), pa.array([None, "k", "größe"]))
    info = TopicPublishInfo("orders", QUEUES, counter_start=0)
    expected = [None, info.queue_of_key("k"), None, info.queue_of_key("größe")]
    assert queues_of(places(), pa.record_batch({"shardingKey": keys})) == expected


def test_rows_without_either_have_no_lane() -> None:
    rows = pa.record_batch({"body": [b"x"], "shardingKey": pa.array([None], pa.string())})
    assert places().lanes(rows) is None


def test_a_queue_that_a_broker_does_not_have_is_refused_and_a_broker_that_is_away_is_not() -> None:
    names = {"brokerName": pa.array(["broker-a"]), "queueId": pa.array([3], pa.int32())}
    with pytest.raises(InvalidMessage, match="orders has no queue 3 on broker-a to write to; it has 0, 1, 2"):
        places().lanes(pa.record_batch(names))
    away = pa.record_batch({**names, "brokerName": pa.array(["broker-c"])})
    assert queues_of(places(), away) == [MessageQueue("orders", "broker-c", 3)]


def test_a_queue_has_one_target_for_rows_that_name_it_and_one_for_keys() -> None:
    """Only a row with a sharding key may go elsewhere, when the topic has lost the queue."""
    topic_places = places()
    info = TopicPublishInfo("orders", QUEUES, counter_start=0)
    key = next(key for key in map(str, range(100)) if info.queue_of_key(key) == QUEUES[4])
    queue = {"brokerName": pa.array(["broker-b"]), "queueId": pa.array([1], pa.int32())}
    assert queues_of(topic_places, pa.record_batch(queue)) == [QUEUES[4]]
    assert queues_of(topic_places, pa.record_batch(queue)) == [QUEUES[4]]
    assert len(topic_places.fixed) == 1
    same = [other for other in map(str, range(100)) if info.queue_of_key(other) == QUEUES[4]]
    assert queues_of(topic_places, pa.record_batch({"shardingKey": pa.array(same)})) == [QUEUES[4]] * len(same)
    assert queues_of(topic_places, pa.record_batch({"shardingKey": pa.array([key])})) == [QUEUES[4]]
    assert [type(target) for target in topic_places.fixed] == [ThisQueue, KeyedQueue]


def test_delayed_rows_are_separated() -> None:
    rows = pa.record_batch({"body": [b"1", b"2", b"3"], "delayLevel": pa.array([None, 3, None], pa.int32())})
    checked = check(rows)
    assert isinstance(checked, list)
    delayed, plain = by_batch(*checked)
    assert delayed.column("body").to_pylist() == [b"2"]
    assert plain.to_batch().to_pydict() == {"body": [b"1", b"3"], "delayLevel": [None, None]}
    assert plain.to_encode().body.array.to_pylist() == [b"1", b"3"]
