"""The delivery times of timer messages, and the formats of their files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.servers.broker.timers import timer_checkpoint
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.broker.timers.timer_rules import (
    BadTimer,
    TimerSettings,
    exact_ms,
    place_timer,
    rolled_slot,
    slot_of,
)
from tests.servers.broker.timer_stores import SETTINGS, START_MS

DAY_MS = 86_400_000


@given(due_ms=st.integers(1, 1 << 45), precision_ms=st.sampled_from((100, 200, 500, 1000)))
def test_a_time_is_rounded_as_java_rounds_it(due_ms: int, precision_ms: int) -> None:
    java = due_ms - precision_ms if due_ms % precision_ms == 0 else due_ms // precision_ms * precision_ms
    assert slot_of(due_ms, precision_ms) == java


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"}, START_MS + 3000),
        ({"TIMER_DELAY_MS": "1500", "TIMER_DELIVER_MS": "1"}, START_MS + 1500),
        ({"TIMER_DELIVER_MS": str(START_MS + 655)}, START_MS + 655),
    ],
)
def test_seconds_win_over_milliseconds_and_these_over_a_time(properties: dict[str, str], due_ms: int) -> None:
    assert place_timer(properties, "T", 5, START_MS, SETTINGS)
    placed = {name: properties[name] for name in ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")}
    assert placed == {"TIMER_OUT_MS": str(slot_of(due_ms, 1000)), "REAL_TOPIC": "T", "REAL_QID": "5"}


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_MS": ""},
        {"TIMER_DELIVER_MS": "1_0"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": str(1 << 62)},
        {"TIMER_DELAY_MS": str(3 * DAY_MS + 1)},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "A"},
    ],
)
def test_a_time_that_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(BadTimer):
        place_timer(properties, "T", 0, START_MS, SETTINGS)


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "-5"}, {"TIMER_DELIVER_MS": "1"}])
def test_a_past_time_is_no_timer(properties: dict[str, str]) -> None:
    before = dict(properties)
    assert not place_timer(properties, "T", 0, START_MS, SETTINGS)
    assert properties == before


@given(st.integers(0, 10**6), st.integers(-5, 2000), st.sampled_from((100, 1000)))
def test_the_exact_time_lies_in_its_slot(slot: int, beyond_ms: int, precision_ms: int) -> None:
    out_ms = slot * precision_ms
    exact = exact_ms({"TIMER_DELIVER_MS": str(out_ms + beyond_ms)}, 0, out_ms, precision_ms)
    assert exact == min(max(out_ms + beyond_ms, out_ms + 1), out_ms + precision_ms)
    assert exact_ms({}, 0, out_ms, precision_ms) == out_ms + precision_ms


@given(ahead=st.integers(0, 20 * 172_800))
def test_a_time_far_ahead_is_waited_for_in_parts(ahead: int) -> None:
    write_ms, window_ms = 1_000_000, 172_800_000
    slot_ms, rolls = rolled_slot(write_ms + ahead * 1000, write_ms, TimerSettings())
    assert rolls == (ahead * 1000 >= window_ms)
    assert slot_ms <= write_ms + window_ms
    assert slot_ms == write_ms + ahead * 1000 if not rolls else slot_ms < write_ms + ahead * 1000 + 1


def test_the_checkpoint_is_rocketmqs_and_another_brokers_change_ends_the_mark() -> None:
    ours = TimerCheckpoint(1_795_265_749_000, 104, 17, 0, 1_795_265_750_000, 5, 4096, 1000)
    data = ours.encode()
    assert len(data) == timer_checkpoint.BYTES
    # RocketMQ's fields: read time, timer log, queue offset, master's queue offset, version.
    assert data[:32] == bytes.fromhex(
        "000001a1fe2d6008 0000000000000068 0000000000000011 0000000000000011".replace(" ", "")
    )
    assert TimerCheckpoint.decode(data) == ours
    by_java = TimerCheckpoint.decode(bytes(7) + b"\x01" + data[8:])
    assert by_java is not None
    assert (by_java.read_ms, by_java.queue_offset, by_java.log_end) == (1, 17, None)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_checkpoint_or_none(data: bytes) -> None:
    checkpoint = TimerCheckpoint.decode(data)
    assert (checkpoint is None) == (len(data) < 56)
