"""Delivery of delayed messages: beside the broker's other tasks, and once, whatever ends the broker."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.servers.broker.schedule import delay_levels
from pyrmq_core.servers.broker.schedule.delay_levels import DELIVERIES_AT_ONCE, DelayLevels, entry_maker
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.config_files import encode_config
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import Served, message, serving, until
from tests.servers.broker.stores import NOW_MS, Sent, opened, read

LARGE = StoreSettings(segment_bytes=1 << 20, queue_file_bytes=20_000)
PROPERTIES = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"


async def test_other_tasks_have_a_turn_between_the_levels() -> None:
    levels = 5
    files = MemoryFiles()
    store = opened(files, LARGE)
    for level in range(levels):
        append = Sent("SCHEDULE_TOPIC_XXXX", level, ()).append()
        store.put(replace(append, pieces=[piece(0, b"x", PROPERTIES)] * DELIVERIES_AT_ONCE), 1)
    delays = DelayLevels(store, files, [1000] * levels)
    seen = [0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delays.run)
        while seen[-1] < levels * DELIVERIES_AT_ONCE:
            await trio.lowlevel.checkpoint()
            seen.append(store.reader.bounds(("T", 0))[1])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # trio runs the tasks of one turn in any order: two levels may follow each other.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2 * DELIVERIES_AT_ONCE


LEVELS = {"messageDelayLevel": "1s 2s", "flushConsumerOffsetInterval": "600000"}


async def bodies(served: Served) -> list[bytes]:
    end = served.running.broker.store.reader.bounds(("T", 0))[1]
    return [record.body for record in iterate_records((await served.pull("T")).records)] if end else []


async def send(served: Served, body: bytes, level: int) -> None:
    answer = await served.send("T", body, f"UNIQ_KEY\x01{body.decode()}\x02DELAY\x01{level}\x02")
    assert answer.code == ResponseCode.SUCCESS


def delivered(served: Served, count: int) -> Callable[[], bool]:
    return lambda: served.running.broker.store.reader.bounds(("T", 0))[1] >= count


async def test_a_kill_repeats_no_delivery(tmp_path: Path) -> None:
    """Some messages wait when the broker is killed, and delayOffset.json has none of the deliveries."""
    async with serving(tmp_path, **LEVELS) as served:
        for number in range(3):
            await send(served, b"first %d" % number, 1)
        await until(delivered(served, 3))
        await send(served, b"twice", 2)
        await send(served, b"twice", 2)
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path, **LEVELS) as served:
        await send(served, b"last", 2)  # behind the others of its level
        await send(served, b"after", 1)
        await until(delivered(served, 7))
        deliveries = await bodies(served)
        assert sorted(deliveries) == sorted([b"first 0", b"first 1", b"first 2", b"twice", b"twice", b"last", b"after"])
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path, **LEVELS) as served:
        await send(served, b"again", 2)
        await until(delivered(served, 8))
        assert (await bodies(served))[7:] == [b"again"]


@pytest.mark.parametrize(("delivered_at", "back_to"), [(1000, 300), (-600, 500)], ids=["when due", "at once"])
async def test_a_clock_that_was_set_back_before_a_kill_repeats_no_delivery(
    delivered_at: int, back_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were stored after the delivery have earlier times, or the delivery itself an earlier one than due.

    A message that is due later than its delay from now on is delivered at once: its clock was set back.
    """
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(0), now_ms)
    now_ms += delivered_at
    await deliver(store, files)
    now_ms = NOW_MS + back_to
    for number in range(9):
        store.put(Sent("T", 0, (b"other",)).append(), now_ms + number)
    now_ms = NOW_MS + 2000
    store = reopened(files)
    await deliver(store, files)
    assert [record.body for record in read(store, "T", 0)].count(b"x") == 1


async def test_a_search_for_deliveries_begins_where_the_log_ended_when_the_file_was_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pyrmq_core")
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    for level in (1, 0):  # that of level 2 waits, from the begin of the log on
        store.put(delayed(level), now_ms)
    now_ms += DELAYS_MS[0]
    save(files, await deliver(store, files))
    known_to = store.end
    store.put(delayed(0), now_ms)
    now_ms += DELAYS_MS[0]
    await deliver(store, files)
    caplog.clear()
    store = reopened(files)
    await deliver(store, files)
    assert len(read(store, "T", 0)) == 2
    assert f"until {store.end - known_to} bytes" in caplog.text


async def test_the_file_is_written_again_when_the_log_grew_far_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: (NOW_MS + DELAYS_MS[0]) * 1_000_000)
    monkeypatch.setattr(delay_levels, "SEARCHED_BYTES", 1000)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(0), NOW_MS)
    delays = await deliver(store, files)
    save(files, delays)
    assert delays.unsaved() is None
    store.put(Sent("T", 0, (b"other" * 200,)).append(), NOW_MS)
    save(files, delays)
    assert delays.unsaved() is None


async def test_what_a_search_found_and_is_not_due_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(1), now_ms)
    now_ms = NOW_MS + DELAYS_MS[1]
    await deliver(store, files)
    now_ms = NOW_MS + DELAYS_MS[1] // 2
    store = reopened(files)
    store.put(delayed(0), now_ms - DELAYS_MS[0])
    save(files, await deliver(store, files))
    assert len(read(store, "T", 0)) == 2
    now_ms = NOW_MS + 2 * DELAYS_MS[1]
    store = reopened(files)
    await deliver(store, files)
    assert len(read(store, "T", 0)) == 2


async def test_what_was_delivered_at_once_by_a_wrong_clock_is_not_delivered_when_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy is older than the delayed message, and the next start's clock is right."""
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(1), now_ms)
    now_ms = NOW_MS - 600
    await deliver(store, files)
    assert len(read(store, "T", 0)) == 1
    now_ms = NOW_MS + 1000
    store = reopened(files)
    async with delivering(store, files) as delays:
        now_ms = NOW_MS + DELAYS_MS[1]
        await deliver_more(delays)
    assert len(read(store, "T", 0)) == 1


async def test_a_start_knows_all_deliveries_though_a_message_is_due_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery is found that no file has, and another message waits for less than a second."""
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(0), now_ms)
    now_ms += DELAYS_MS[0]
    await deliver(store, files)
    store.put(delayed(1), now_ms)
    store.put(delayed(0), now_ms)
    store = reopened(files)
    delays = await deliver(store, files)
    assert written_end(delays) == store.end
    assert len(read(store, "T", 0)) == 1


async def test_a_file_without_the_end_of_the_log_does_not_hide_a_later_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ writes such a file. The search finds a delivery that the file counts, and a new message is like it."""
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    store = reopened(files)
    for level in (1, 0):
        store.put(delayed(level), now_ms)
    now_ms += DELAYS_MS[0]
    files.save("config/delayOffset.json", encode_config((await deliver(store, files)).members()))
    store = reopened(files)
    async with delivering(store, files) as delays:
        store.put(delayed(0), now_ms)
        now_ms += DELAYS_MS[0]
        await deliver_more(delays)
    assert len(read(store, "T", 0)) == 2


async def test_an_end_beyond_the_log_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was restored, or lost its end with the power: the delivery before the kill is found all the same."""
    now_ms = NOW_MS
    monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
    files = MemoryFiles()
    files.save("config/delayOffset.json", encode_config({"logEnd": 1 << 40}))
    store = reopened(files)
    store.put(delayed(0), now_ms)
    now_ms += DELAYS_MS[0]
    await deliver(store, files)
    store = reopened(files)
    delays = await deliver(store, files)
    assert len(read(store, "T", 0)) == 1
    assert written_end(delays) == store.end


def test_an_end_beyond_the_log_is_written_anew() -> None:
    """The log may grow beyond it before a delivery changes the file."""
    files = MemoryFiles()
    files.save("config/delayOffset.json", encode_config({"logEnd": 1 << 40}))
    delays = DelayLevels(reopened(files), files, DELAYS_MS)
    delays.load()
    delays.look_back()
    assert written_end(delays) == 0


def test_a_missing_end_is_null_too_and_a_wrong_one_is_named() -> None:
    files = MemoryFiles()
    delays = DelayLevels(reopened(files), files, DELAYS_MS)
    files.save("config/delayOffset.json", b'{"logEnd":null}')
    delays.load()
    files.save("config/delayOffset.json", b'{"logEnd":[1]}')
    with pytest.raises(StoreError, match=r"^delayOffset\.json: list is no number"):
        delays.load()


def test_a_slave_does_not_write_the_file_again_without_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far its log has grown: the part that its master knew does not grow with it."""
    monkeypatch.setattr(delay_levels, "SEARCHED_BYTES", 0)
    files = MemoryFiles()
    store = reopened(files)
    store.put(delayed(0), NOW_MS)
    delays = DelayLevels(store, files, DELAYS_MS)
    delays.replace({1: 0}, 0)
    save(files, delays)
    assert delays.unsaved() is None


DELAYS_MS = (1000, 5000)


def delayed(level: int) -> Append:
    properties = PROPERTIES.replace(b"DELAY\x011", b"DELAY\x01%d" % (level + 1))
    append = Sent("SCHEDULE_TOPIC_XXXX", level, ()).append()
    return replace(append, pieces=[piece(0, b"x", properties)], delay_ms=DELAYS_MS[level])


def reopened(files: MemoryFiles) -> MessageStore:
    store = MessageStore(files, LARGE, entry_maker(DELAYS_MS))
    store.open(1)
    return store


@asynccontextmanager
async def delivering(store: MessageStore, files: MemoryFiles) -> AsyncIterator[DelayLevels]:
    """Starts the levels as a broker does, yields them when they have delivered what is due, and kills them."""
    delays = DelayLevels(store, files, DELAYS_MS)
    delays.load()
    delays.look_back()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delays.run)
        await wait_all_tasks_blocked()
        yield delays
        nursery.cancel_scope.cancel()


async def deliver(store: MessageStore, files: MemoryFiles) -> DelayLevels:
    async with delivering(store, files) as delays:
        return delays


async def deliver_more(delays: DelayLevels) -> None:
    delays.arrived()
    await wait_all_tasks_blocked()


def save(files: MemoryFiles, delays: DelayLevels) -> None:
    text = delays.unsaved()
    assert text is not None
    files.save("config/delayOffset.json", text())


def written_end(delays: DelayLevels) -> object:
    text = delays.unsaved()
    assert text is not None
    return load_object(text(), "delayOffset.json")["logEnd"]


async def test_a_message_that_only_looks_delivered_is_delivered(tmp_path: Path) -> None:
    """A message that was delivered, and sent again with its properties, waits again."""
    async with serving(tmp_path, **LEVELS) as served:
        await send(served, b"once", 1)
        await until(delivered(served, 1))
        (record,) = iterate_records((await served.pull("T")).records)
        again = replace(
            message("T", b"once", encode_properties(decode_properties(record.properties))), born_timestamp_ms=5
        )
        assert (await served.ask(again.to_command())).code == ResponseCode.SUCCESS
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path, **LEVELS) as served:
        await until(delivered(served, 2))
        await send(served, b"other", 1)
        await until(delivered(served, 3))
        assert await bodies(served) == [b"once", b"once", b"other"]


async def test_a_batch_that_was_given_back_as_one_message_is_delivered_as_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier versions stored it so: the record does not say which of its messages failed."""
    body = encode_batch_body(BatchItem(0, b"%d" % n, b"TAGS\x01t%d\x02UNIQ_KEY\x01U%d\x02" % (n, n)) for n in range(3))
    added = {"RETRY_TOPIC": "B", "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
    properties = encode_properties({"UNIQ_KEY": "R", "TAGS": "t0", **added}).encode()
    append = replace(
        Sent("SCHEDULE_TOPIC_XXXX", 0, ()).append(),
        pieces=[piece(0, body, properties)],
        sys_flag=BATCH_RECORD,
        inner_num=1,
        reconsume_times=1,
        delay_ms=1,
    )
    async with serving(tmp_path, **LEVELS) as served:
        await send(served, b"before", 1)
        served.running.broker.store.put(append, NOW_MS)
        await send(served, b"after", 1)
        await until(delivered(served, 5))
        _, *own, _ = iterate_records((await served.pull("T")).records)
    assert [record.body for record in own] == [b"0", b"1", b"2"]
    for number, record in enumerate(own):
        expected = {**added, "TAGS": f"t{number}", "UNIQ_KEY": f"U{number}"}
        assert decode_properties(record.properties) == expected
        assert (record.sys_flag, record.reconsume_times, record.queue_offset) == (0, 1, number + 1)
    assert "is delivered as its 3 messages" in caplog.text
