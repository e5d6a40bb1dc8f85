"""The number of waiting timer messages by topic, as the page of metrics has it."""

from __future__ import annotations

import pytest

from pyrmq_core.servers.broker.timers.topic_counts import TOPICS_KEPT, TopicCounts
from tests.servers.broker.timer_stores import START_MS, TimedStore, timed_store


def send(timed: TimedStore, topic: str, *seconds: int) -> None:
    for number in seconds:
        timed.send(f"{topic} in {number}".encode(), {"TIMER_DELIVER_MS": str(START_MS + number * 1000)}, topic)


def again(timed: TimedStore, way: str) -> None:
    match way:
        case "kill":
            timed.kill()
        case "restart":
            timed.restart()


@pytest.mark.parametrize("way", ["goes on", "kill", "restart"])
def test_each_topic_has_its_number_until_its_messages_are_delivered(way: str) -> None:
    with timed_store() as timed:
        send(timed, "T", 2, 5, 5, 100)
        send(timed, "U", 5, 100)
        assert timed.waiting() == {}
        timed.work()
        timed.save()
        assert timed.waiting() == {"T": 4, "U": 2}
        again(timed, way)
        assert timed.waiting() == {"T": 4, "U": 2}
        timed.run_until(START_MS + 3000)
        assert timed.waiting() == {"T": 3, "U": 2}
        again(timed, way)
        timed.run_until(START_MS + 7000)
        assert timed.waiting() == {"T": 1, "U": 1}
        timed.run_until(START_MS + 110_000)
        assert not any(timed.waiting().values())
        send(timed, "U", 200)
        timed.work()
        assert timed.waiting()["U"] == 1


def test_a_message_that_is_taken_back_counts_no_more() -> None:
    with timed_store() as timed:
        send(timed, "T", 5, 6)
        timed.work()
        timed.take_back(b"T in 5", START_MS + 5000)
        timed.work()
        assert timed.waiting() == {"T": 1}
        timed.restart()
        assert timed.waiting() == {"T": 1}
        timed.run_until(START_MS + 5900)
        assert timed.waiting() == {"T": 1}
        timed.run_until(START_MS + 8000)
        assert timed.waiting() == {"T": 0}
        assert list(timed.delivered()) == [b"T in 6"]


def test_a_slot_that_was_begun_has_the_rest_after_a_stop() -> None:
    """The entries that are left are written once more when the broker stops."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)}, "TU"[number % 2])
        timed.work()
        timed.now_ms += 2000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        assert timed.waiting() == {"T": 60, "U": 60}
        left = 120 - len(timed.delivered("T") | timed.delivered("U"))
        assert 0 < left < 120
        timed.restart()
        assert sum(timed.waiting().values()) == left
        assert all(timed.waiting().values())


def test_a_slot_that_was_begun_counts_no_recalled_message_after_a_stop() -> None:
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.take_back(b"119", START_MS + 2000)
        timed.work()
        assert timed.timers.files.waiting == 119
        timed.now_ms += 2000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        left = 119 - len(timed.delivered())
        assert 0 < left < 119
        timed.restart()
        assert timed.waiting() == {"T": left}
        assert timed.timers.files.waiting == left
        timed.run_until(START_MS + 8000)
        assert timed.count() == 119
        assert timed.timers.files.waiting == 0


@pytest.mark.parametrize("lost", ["", "timerwheel"])
def test_a_wheel_that_is_linked_again_counts_no_recalled_message(lost: str) -> None:
    with timed_store() as timed:
        timed.save()
        send(timed, "T", 5, 6, 7)
        timed.take_back(b"T in 5", START_MS + 5000)
        timed.work()
        if lost:
            timed.files.remove(lost)
        timed.kill()
        assert timed.waiting() == {"T": 2}
        assert timed.timers.files.waiting == 2
        assert timed.timers.files.wheel.number(START_MS, START_MS + 10_000) == 2


def test_timers_that_are_built_anew_are_counted_anew() -> None:
    with timed_store() as timed:
        send(timed, "T", 5, 6)
        send(timed, "U", 7)
        timed.work()
        timed.save()
        timed.store.abandon()
        (timed.directory / "config" / "timercheck").unlink()
        timed.open()
        timed.work()
        assert timed.waiting() == {"T": 2, "U": 1}


def test_a_log_that_is_damaged_while_the_broker_runs_is_counted_anew() -> None:
    with timed_store() as timed:
        send(timed, "T", 5, 60)
        send(timed, "U", 60)
        timed.work()
        for file in (timed.directory / "timerlog").iterdir():
            file.write_bytes(bytes(file.stat().st_size))
        timed.timers.files.log._window = b""
        timed.run_until(START_MS + 7000)
        assert ["built anew" in line for line in timed.lines] == [True]
        assert list(timed.delivered()) == [b"T in 5"]
        assert timed.waiting() == {"T": 1, "U": 1}


def test_topics_without_messages_are_not_kept_for_ever() -> None:
    with timed_store() as timed:
        send(timed, "T", 5)
        timed.work()
        counts = timed.timers.files.topics
        assert isinstance(counts, TopicCounts)
        counts.change({}, dict.fromkeys(range(1000, 1000 + TOPICS_KEPT), 0))  # hashes of other topics
        assert timed.waiting() == {"T": 1}
        assert len(counts._numbers) == 1
