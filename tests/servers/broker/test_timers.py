"""Timer messages in the store: each is delivered at its time, as it was, unless it is taken back."""

from collections.abc import Sequence

import pytest

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.timers.timer_rules import (
    TIMER_TOPIC,
    slot_of,
)
from tests.servers.broker.timer_stores import DAY_MS, START_MS, properties_of, timed_store


def test_each_message_comes_at_its_own_millisecond() -> None:
    with timed_store() as timed:
        delays = [1, 700, 655, 656, 1655, 2000, 60_000, 3_000]
        for number, delay_ms in enumerate(delays):
            timed.send(b"%d" % number, {"TIMER_DELAY_MS": str(delay_ms)}, queue_id=number % 2)
        timed.run_until(START_MS + 61_000)
        deliveries = timed.delivered(queue_id=0) | timed.delivered(queue_id=1)
        assert deliveries == {b"%d" % number: [START_MS + delay_ms] for number, delay_ms in enumerate(delays)}
        assert timed.work() > DAY_MS


def test_a_delivered_message_keeps_its_properties_and_its_origin() -> None:
    with timed_store() as timed:
        timed.send(b"x", {"TAGS": "red", "TIMER_DELAY_SEC": "2", "own": "värde"}, queue_id=3)
        timed.run_until(START_MS + 5000)
        (record,) = timed.records(queue_id=3)
        properties = properties_of(record)
        slot_ms = slot_of(START_MS + 2000, 1000)
        assert properties == {
            "UNIQ_KEY": "x",
            "TAGS": "red",
            "own": "värde",
            "TIMER_DELAY_SEC": "2",
            "TIMER_OUT_MS": str(slot_ms),
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
            "TIMER_ENQUEUE_MS": str(START_MS // 1000 * 1000),
            "TIMER_DEQUEUE_MS": str(START_MS + 2000),
        }
        assert record.born_timestamp_ms == START_MS


def test_properties_without_their_last_separator_are_kept() -> None:
    """RocketMQ before 5.2 writes them so."""
    with timed_store() as timed:
        slot_ms = slot_of(START_MS + 2000, 1000)
        timed.put(TIMER_TOPIC, 0, b"x", b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02TIMER_OUT_MS\x01%d" % slot_ms)
        timed.run_until(START_MS + 5000)
        (record,) = timed.records()
        assert properties_of(record) == {
            "REAL_TOPIC": "T",
            "REAL_QID": "0",
            "TIMER_OUT_MS": str(slot_ms),
            "TIMER_ENQUEUE_MS": str(START_MS // 1000 * 1000),
            "TIMER_DEQUEUE_MS": str(slot_ms + 1000),
        }


def test_the_figures_of_timers() -> None:
    with timed_store() as timed:
        for delay_ms in (500, 2000, 2100, 60_000):
            timed.send(b"%d" % delay_ms, {"TIMER_DELAY_MS": str(delay_ms)})
        assert (timed.timers.unread, timed.timers.files.waiting) == (4, 0)
        timed.timers.work(timed.now_ms)
        assert (timed.timers.unread, timed.timers.files.waiting, timed.timers.late_ms(timed.now_ms)) == (0, 4, 0)
        assert timed.timers.late_ms(START_MS + 1655) == 1000
        timed.run_until(START_MS + 5000)
        assert (timed.timers.files.waiting, timed.timers.late_ms(timed.now_ms)) == (1, 0)
        timed.kill()
        timed.work()
        assert timed.timers.files.waiting == 1


def test_equal_times_keep_the_order_of_the_sends() -> None:
    with timed_store() as timed:
        for number in range(500):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.run_until(START_MS + 3000)
        assert [record.body for record in timed.records()] == [b"%d" % number for number in range(500)]


def test_a_message_for_the_second_that_is_open_comes_in_time() -> None:
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "500"})
        timed.work()
        timed.now_ms += 100
        timed.send(b"b", {"TIMER_DELAY_MS": "300"})
        timed.send(b"c", {"TIMER_DELAY_MS": "500"})
        timed.run_until(START_MS + 5000)
        assert timed.delivered() == {b"b": [START_MS + 400], b"a": [START_MS + 500], b"c": [START_MS + 600]}


def test_a_message_that_is_read_late_is_delivered_at_once() -> None:
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "500"})
        timed.now_ms += 10_000
        timed.work()
        assert timed.delivered() == {b"a": [START_MS + 10_000]}
        (record,) = timed.records()
        assert properties_of(record)["TIMER_ENQUEUE_MS"] == str(2**63 - 1)


def test_a_message_taken_back_does_not_come() -> None:
    with timed_store() as timed:
        for topic in ("T", "U"):
            for name in (b"a", b"b", b"c"):
                timed.send(name, {"TIMER_DELAY_MS": "5000"}, topic)
        timed.take_back(b"a", slot_of(START_MS + 5000, 1000) + 1)
        timed.run_until(START_MS + 4700)  # the slot is open: it has what is due after START_MS + 4655
        timed.take_back(b"b", START_MS + 4990)
        timed.run_until(START_MS + 8000)
        assert (list(timed.delivered("T")), list(timed.delivered("U"))) == ([b"c"], [b"a", b"b", b"c"])


def test_three_days_are_waited_for_in_parts_that_removal_does_not_reach() -> None:
    """Each part is stored anew, at most two days before its time. A delay then counts to the end of its second."""
    with timed_store() as timed:
        timed.send(b"far", {"TIMER_DELAY_SEC": "259200"})
        timed.send(b"gone", {"TIMER_DELAY_SEC": "259200"})
        timed.take_back(b"gone", slot_of(START_MS + 3 * DAY_MS, 1000) + 1)
        timed.run_until(START_MS + 4 * DAY_MS)
        assert timed.delivered() == {b"far": [slot_of(START_MS + 3 * DAY_MS, 1000) + 1000]}
        waited = [record for record in timed.records(TIMER_TOPIC) if record.body == b"far"]
        assert [record.store_timestamp_ms // DAY_MS - START_MS // DAY_MS for record in waited] == [0, 2]
        assert [properties_of(record).get("TIMER_ROLL_TIMES") for record in waited] == [None, "1"]
        (record,) = timed.records()
        assert record.properties.count("TIMER_ENQUEUE_MS") == record.properties.count("TIMER_DEQUEUE_MS") == 1


def test_a_record_that_is_no_timer_message_stops_nothing() -> None:
    """RocketMQ's delivery would end here for good."""
    with timed_store() as timed:
        for properties in (b"", b"TIMER_OUT_MS\x01x\x02", b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01y\x02"):
            timed.put(TIMER_TOPIC, 0, b"stray", properties)
        timed.put(TIMER_TOPIC, 0, b"path", b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01../up\x02REAL_QID\x010\x02")
        timed.send(b"a", {"TIMER_DELAY_MS": "500"})
        timed.run_until(START_MS + 2000)
        assert list(timed.delivered()) == [b"a"]
        assert len(timed.lines) == 4
        assert all("is not delivered" in line for line in timed.lines)


def test_an_entry_that_names_another_record_is_no_timer_message() -> None:
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "500"})
        timed.send(b"b", {"TIMER_DELAY_MS": "600"})
        entry, entry_of = timed.store.reader.entry(("rmq_sys_wheel_timer", 0), 1), timed.store.reader.entry
        timed.store.reader.entry = lambda key, offset: entry if offset == 0 else entry_of(key, offset)  # type: ignore[method-assign]
        timed.run_until(START_MS + 2000)
        assert (list(timed.delivered()), len(timed.lines)) == ([b"b"], 1)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_full_disk_delays_and_loses_nothing(is_late: bool) -> None:
    """A message may be due when it is read."""
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "500"})
        if not is_late:
            timed.work()
        put_all, timed.store.put_all = timed.store.put_all, refused  # type: ignore[method-assign]
        timed.now_ms += 5000
        with pytest.raises(StoreError, match="no space"):
            timed.work()
        timed.store.put_all = put_all  # type: ignore[method-assign]
        timed.work()
        assert timed.delivered() == {b"a": [START_MS + 5000]}


def refused(appends: Sequence[Append], now_ms: int) -> list[AppendResult | StoreError]:
    return [StoreError("no space left on device")] * len(appends)
