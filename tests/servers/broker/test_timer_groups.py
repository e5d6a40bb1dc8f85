"""Groups of timer messages that are delivered together: a full disk in the middle repeats and loses none."""

import contextlib
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.timers.open_slot import OpenSlot
from pyrmq_core.servers.broker.timers.timer_log import DEFAULT, ENTRY, NO_ENTRY, DamagedTimers, TimerEntry
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC, TimerSettings
from tests.servers.broker.timer_stores import START_MS, FillingDisk, TimedStore, timed_store

LARGE = TimerSettings()
DUE_MS = START_MS + 2000
# Most groups of these have some 200 KB, so that a group in five crosses the end of a segment.
BODY_BYTES = 20_000


def sent(timed: TimedStore, count: int, **properties: str) -> list[bytes]:
    """Sends messages that are due at one time, to two queues in turns."""
    bodies = [b"%d" % number + b"x" * BODY_BYTES for number in range(count)]
    for number, body in enumerate(bodies):
        own = {"UNIQ_KEY": str(number), "TIMER_DELIVER_MS": str(DUE_MS), **properties}
        timed.send(body, own, queue_id=number % 2)
    timed.work()
    return bodies


def fill_up(timed: TimedStore, room: int) -> None:
    """Works on a disk with so much room until it is full, or all is delivered."""
    files = timed.files
    assert isinstance(files, FillingDisk)
    files.room = room
    with contextlib.suppress(StoreError):
        timed.work()
    files.room = None


@given(rooms=st.lists(st.integers(0, 600_000), min_size=1, max_size=3), ended=st.sampled_from(("", "kill", "restart")))
@settings(deadline=None, max_examples=60)
def test_a_disk_that_is_full_in_the_middle_of_a_group_repeats_and_loses_none(rooms: list[int], ended: str) -> None:
    with timed_store(LARGE, files=FillingDisk) as timed:
        bodies = sent(timed, 100)
        timed.save()
        timed.now_ms = DUE_MS
        for room in rooms:
            fill_up(timed, room)
            if ended == "kill":
                timed.kill()
            elif ended == "restart":
                timed.restart()
        timed.run_until(DUE_MS + 5000)
        for queue_id in range(2):
            assert [record.body for record in timed.records("T", queue_id)] == bodies[queue_id::2]
        assert timed.lines == []


def test_a_clock_that_is_set_back_while_the_disk_is_full_does_not_end_the_storing() -> None:
    """The open slot is left when there is room again: the mark that the disk refuses then is no lost sync."""
    with timed_store(LARGE, files=FillingDisk) as timed:
        bodies = sent(timed, 4)
        timed.now_ms = DUE_MS
        timed.work()
        timed.now_ms -= 5000
        fill_up(timed, 0)
        assert timed.store.failure == ""
        timed.send(b"later", {"TIMER_DELIVER_MS": str(DUE_MS + 1000)})
        timed.run_until(DUE_MS + 5000)
        assert [record.body for record in timed.records("T", 0)] == [*bodies[::2], b"later"]
        assert [record.body for record in timed.records("T", 1)] == bodies[1::2]


@given(kept=st.integers(0, 100), room=st.integers(0, 600_000))
@settings(deadline=None, max_examples=40)
def test_copies_of_an_earlier_run_within_a_group_are_not_stored_again(kept: int, room: int) -> None:
    """Equal messages have equal copies, which count: the disk is full before, between or behind them."""
    with timed_store(LARGE, files=FillingDisk) as timed:
        count = 30
        for number in range(count):
            timed.send(b"%d" % (number % 7) + b"x" * BODY_BYTES, {"UNIQ_KEY": "k", "TIMER_DELIVER_MS": str(DUE_MS)})
        timed.work()
        timed.save()
        timed.now_ms = DUE_MS
        fill_up(timed, kept * 6000)
        timed.kill()
        fill_up(timed, room)
        timed.run_until(DUE_MS + 5000)
        bodies = [record.body for record in timed.records()]
        assert sorted(bodies) == sorted(b"%d" % (number % 7) + b"x" * BODY_BYTES for number in range(count))


def test_what_is_not_stored_is_done_with_the_rest_of_its_group() -> None:
    """A message that is taken back, one for a topic that cannot be a folder, and one whose record is damaged."""
    with timed_store(LARGE) as timed:
        names = {"TIMER_DELIVER_MS": str(DUE_MS)}
        for name in (b"first", b"gone", b"damaged", b"last"):
            timed.send(name, names)
        timed.send(b"path", names, topic="../up")
        timed.send(b"other", names, topic="U")
        timed.take_back(b"gone", DUE_MS)
        timed.work()
        damaged = timed.records(TIMER_TOPIC)[2]
        log = timed.store.files.open("commitlog/" + file_name(0), 0)
        log.write(damaged.commit_log_offset + 90, b"\xff" * 8)
        groups = recorded_groups(timed)
        timed.run_until(DUE_MS + 2000)
        assert [[append.topic for append in group] for group in groups if group] == [["T", "T", "../up", "U"]]
        assert [list(timed.delivered(topic)) for topic in ("T", "U")] == [[b"first", b"last"], [b"other"]]
        assert sorted(line.partition(":")[0] for line in timed.lines) == [
            "1 timer messages are not delivered, whose records are damaged or removed from the commit log; the first "
            f"was at {damaged.commit_log_offset}",
            "a timer message for '../up' is not delivered",
        ]


def recorded_groups(timed: TimedStore) -> list[list[Append]]:
    """Returns a list to which each group is added that is stored from now on."""
    groups: list[list[Append]] = []
    put_all = timed.store.put_all

    def recorded(appends: Sequence[Append], now_ms: int) -> list[AppendResult | StoreError]:
        groups.append(list(appends))
        return put_all(appends, now_ms)

    timed.store.put_all = recorded  # type: ignore[method-assign]
    return groups


def test_a_message_that_waits_on_is_stored_with_its_group_and_comes_once() -> None:
    """A slot has messages that are due, and others that wait on from there."""
    with timed_store(TimerSettings(roll_slots=30)) as timed:
        rolled_ms = START_MS // 1000 * 1000 + 15_000
        timed.send(b"far", {"TIMER_DELIVER_MS": str(START_MS + 35_000)})
        timed.send(b"near", {"TIMER_DELIVER_MS": str(rolled_ms + 1000)})
        groups = recorded_groups(timed)
        timed.run_until(START_MS + 60_000)
        assert [[append.topic for append in group] for group in groups if len(group) > 1] == [[TIMER_TOPIC, "T"]]
        assert timed.delivered() == {b"near": [rolled_ms + 1000], b"far": [START_MS + 35_000]}


def test_messages_before_a_damaged_entry_are_delivered_once() -> None:
    """The timer log is built anew after those of its group that come before."""
    with timed_store(LARGE) as timed:
        bodies = sent(timed, 5)
        timed.save()
        timed.now_ms = DUE_MS
        for _ in range(2):  # open the slot, read its chain
            timed.timers.work(timed.now_ms)
        log, damaged = timed.timers.files.log, [3 * ENTRY.size]
        entry_of = log.entry

        def entry(position: int) -> TimerEntry:
            if position in damaged:
                damaged.clear()
                raise DamagedTimers("the timer log has no entry there")
            return entry_of(position)

        log.entry = entry  # type: ignore[method-assign]
        timed.timers.work(timed.now_ms)
        assert (timed.store.reader.bounds(("T", 0)), timed.store.reader.bounds(("T", 1))) == ((0, 2), (0, 1))
        timed.run_until(DUE_MS + 5000)
        for queue_id in range(2):
            assert [record.body for record in timed.records("T", queue_id)] == bodies[queue_id::2]
        assert len(timed.lines) == 1


def test_entries_that_are_given_back_are_the_next_ones_again() -> None:
    slot = OpenSlot(START_MS, 1000)
    for position in (300, 200, 100):  # a chain leads from the newest to the oldest
        slot.link(position, entry_due(5))
    slot.sort()
    slot.add(400, entry_due(4))
    slot.add(500, entry_due(9))
    entries = [slot.take(START_MS + 6) for _ in range(4)]
    assert entries == [(START_MS + 4, 400), *((START_MS + 5, position) for position in (100, 200, 300))]
    assert slot.take(START_MS + 6) is None
    slot.give_back([entry for entry in entries[1:] if entry is not None])
    assert slot.next_ms == START_MS + 5
    slot.add(600, entry_due(5))
    assert list(slot.left()) == [100, 200, 300, 600, 500]
    order = []
    while (entry := slot.take(START_MS + 9)) is not None:
        order.append(entry[1])
    assert order == [100, 200, 300, 600, 500]
    assert slot.next_ms is None


def entry_due(ms: int) -> TimerEntry:
    return TimerEntry(NO_ENTRY, DEFAULT, START_MS, START_MS, 0, 100, due_ms=START_MS + ms)
