"""Retention: which segments go and when, a disk that fills and has room again, removals that fail, clocks set back."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import InvalidArgument, StoreError
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.disk.files import DiskSpace
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.retention_rules import HOUR_MS, hours_of, judge
from pyrmq_core.servers.broker.store_services.retention import Retention
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import until
from tests.servers.broker.stores import NOW_MS, SMALL, Sent, opened, put

NEVER = {"deleteWhen": ""}


def disk(percent: int, *, room: int = 0) -> DiskSpace:
    """Returns a disk of which so much is used."""
    return DiskSpace(total=100, free=100 - percent, usable=100 - percent + room)


@dataclass
class Kept:
    """A store of some segments, and its retention with a clock of its own."""

    given: dict[str, str] = field(default_factory=dict)
    segments: int = 5
    files: MemoryFiles = field(default_factory=MemoryFiles)
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.store: MessageStore = opened(self.files)
        self.fill(self.segments)
        config = BrokerConfig(mapped_file_size_commit_log=SMALL.segment_bytes).with_settings({**NEVER, **self.given})
        self.retention = Retention(self.store, config, lambda: self.now_ms)

    def fill(self, segments: int) -> None:
        while self.store.end <= (segments - 1) * SMALL.segment_bytes:
            put(self.store, Sent("A", 0, (b"body",)))
        self.store.flush()

    def written(self, *ages_hours: float) -> None:
        """Sets when the segments were last written, from the oldest one on."""
        for name, hours in zip(self.names, ages_hours, strict=False):
            self.files.modified[f"commitlog/{name}"] = int(self.now_ms - hours * HOUR_MS)

    @property
    def names(self) -> list[str]:
        return self.files.names("commitlog")

    async def left(self) -> int:
        """Returns the number of segments after a round."""
        await self.retention.work()
        return len(self.names)


async def test_old_segments_go_at_the_hour_from_the_oldest_on(autojump_clock: MockClock) -> None:
    kept = Kept({"deleteWhen": ";".join(map(str, range(24)))})
    kept.written(100, 73, 71, 100, 0)
    assert await kept.left() == 3
    assert kept.store.start == 2 * SMALL.segment_bytes
    assert kept.store.reader.bounds(("A", 0))[0] > 0
    kept.now_ms += HOUR_MS
    assert await kept.left() == 1, "that behind the young one was old already"
    kept.now_ms += 1000 * HOUR_MS
    assert await kept.left() == 1, "the last one is written to"


async def test_outside_the_hour_nothing_goes_but_by_hand(autojump_clock: MockClock) -> None:
    kept = Kept()
    assert await kept.left() == 5
    kept.retention.remove_by_hand()
    assert await kept.left() == 1
    kept = Kept(segments=30)
    kept.retention.remove_by_hand()
    assert [await kept.left() for _ in range(3)] == [20, 10, 1], "deleteFileBatchMax"


async def test_a_clock_that_is_set_back_keeps_more_and_never_less(autojump_clock: MockClock) -> None:
    kept = Kept({"deleteWhen": ";".join(map(str, range(24)))})
    kept.written(71, 71, 71, 71, 0)
    kept.now_ms -= 1000 * HOUR_MS
    assert await kept.left() == 5
    kept.now_ms += 1002 * HOUR_MS
    assert await kept.left() == 1


@pytest.mark.parametrize(
    ("percent", "left", "is_full"), [(75, 5, False), (76, 3, False), (85, 3, False), (86, 1, False), (91, 1, True)]
)
async def test_a_disk_that_fills(percent: int, left: int, is_full: bool, autojump_clock: MockClock) -> None:
    kept = Kept()
    kept.written(100, 100, 0, 0, 0)
    kept.files.disk = disk(percent)
    assert await kept.left() == left
    assert bool(kept.store.refusal) == is_full


async def test_without_force_young_segments_stay_on_a_full_disk(autojump_clock: MockClock) -> None:
    kept = Kept({"cleanFileForciblyEnable": "false"})
    kept.written(100, 0, 0, 0, 0)
    kept.files.disk = disk(95)
    assert await kept.left() == 4
    with pytest.raises(StoreError, match=r"95 % are used, and above 90 %"):
        put(kept.store, Sent("A", 0, (b"refused",)))


async def test_a_full_disk_refuses_until_there_is_room_again(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    kept = Kept()
    start, end = kept.store.reader.bounds(("A", 0))
    kept.files.disk = disk(91)
    for _ in range(3):
        await kept.retention.work()
    with pytest.raises(StoreError, match=r"disk is full"):
        put(kept.store, Sent("A", 0, (b"refused",)))
    assert kept.store.reader.bounds(("A", 0))[1] == end
    kept.files.disk = disk(90)
    await kept.retention.work()
    put(kept.store, Sent("A", 0, (b"taken",)))
    assert kept.store.reader.bounds(("A", 0))[1] == end + 1
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "messages are refused" in text]) == 1
    assert len([text for text in texts if "taken again" in text]) == 1
    assert start == 0


async def test_a_system_that_says_nothing_of_its_disk(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    kept = Kept()
    kept.files.disk = StoreError("cannot look at the file system of /store: Input/output error")
    kept.retention.remove_by_hand()
    assert [await kept.left(), await kept.left()] == [1, 1]
    assert len([record for record in caplog.records if "by their age alone" in record.getMessage()]) == 1


async def test_a_full_disk_refuses_as_long_as_its_room_is_unknown(autojump_clock: MockClock) -> None:
    kept = Kept()
    kept.files.disk = disk(91)
    await kept.retention.work()
    kept.files.disk = StoreError("cannot look at the file system of /store: Input/output error")
    await kept.retention.work()
    assert kept.store.refusal
    kept.files.disk = disk(50)
    await kept.retention.work()
    assert not kept.store.refusal


async def test_a_store_keeps_to_its_size(caplog: pytest.LogCaptureFixture) -> None:
    most = 4 * SMALL.segment_bytes
    kept = Kept({"maxStoreBytes": str(most), "deleteConsumeQueueFilesInterval": "0"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.retention.run)
        for segments in range(5, 30):
            kept.fill(segments)
            await until(lambda: kept.store.log_bytes <= most)
        await until(lambda: len(kept.names) <= 4)
        await until(lambda: sum(map(len, kept.files.contents.values())) < 3 * most)  # queue files go, too
        nursery.cancel_scope.cancel()
    assert len(kept.names) >= 2
    assert len([record for record in caplog.records if "maxStoreBytes=4096" in record.getMessage()]) == 1


async def test_a_file_that_cannot_be_removed_is_tried_again_and_keeps_the_others(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    kept = Kept()
    first = f"commitlog/{0:020}"
    kept.files.unremovable.add(first)
    kept.retention.remove_by_hand()
    assert await kept.left() == 5
    start = kept.store.start
    assert start == SMALL.segment_bytes, "its messages are gone for readers"
    kept.files.unremovable.clear()
    assert await kept.left() == 5, "redeleteHangedFileInterval"
    await trio.sleep(121)
    assert await kept.left() == 1
    assert "tried again after 120000 ms" in caplog.text


async def test_a_queue_file_that_cannot_be_removed_keeps_no_other_queue_waiting(autojump_clock: MockClock) -> None:
    kept = Kept(segments=2)
    for _ in range(40):
        put(kept.store, Sent("A", 0, (b"a",)), Sent("B", 0, (b"b",)))
    kept.store.flush()
    before = [kept.files.names(f"consumequeue/{topic}/0") for topic in "AB"]
    kept.files.unremovable.add(f"consumequeue/A/0/{0:020}")
    kept.retention.remove_by_hand()
    await kept.left()
    after = [kept.files.names(f"consumequeue/{topic}/0") for topic in "AB"]
    assert after[0] == before[0], "each queue's files go in order"
    assert len(after[1]) < len(before[1])
    kept.files.unremovable.clear()
    await kept.left()
    assert len(kept.files.names("consumequeue/A/0")) < len(before[0])


async def test_a_queue_that_cannot_be_read_keeps_no_other_queue_waiting(autojump_clock: MockClock) -> None:
    kept = Kept(segments=2)
    for _ in range(2):
        for _ in range(40):
            put(kept.store, Sent("A", 0, (b"a",)), Sent("B", 0, (b"b",)))
        kept.store.flush()
        before = {topic: kept.files.names(f"consumequeue/{topic}/0") for topic in "AB"}
        kept.files.unremovable = {f"consumequeue/B/0/{before['B'][0]}"}
        kept.retention.remove_by_hand()
        await kept.left()
    kept.fill(30)
    kept.files.unreadable = {f"consumequeue/A/0/{name}": 0 for name in kept.files.names("consumequeue/A/0")}
    kept.retention.remove_by_hand()
    kept.files.unremovable.clear()
    await kept.left()
    assert kept.files.names("consumequeue/B/0") == before["B"][-1:]
    assert len(kept.files.names("consumequeue/A/0")) > 1
    kept.files.unreadable.clear()
    await kept.left()
    assert len(kept.files.names("consumequeue/A/0")) == 1


async def test_a_failing_round_does_not_end_the_service(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept({"cleanResourceInterval": "10"})
    failures: list[Exception] = [StoreError("cannot look"), ValueError("a fault of ours")]

    def fails(path: str) -> int:
        if failures:
            raise failures.pop(0)
        return 0

    monkeypatch.setattr(kept.files, "modified_ms", fails)
    kept.retention.remove_by_hand()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.retention.run)
        await until(lambda: len(kept.names) == 1)
        nursery.cancel_scope.cancel()
    assert "old files are not removed: cannot look" in caplog.text
    assert "a fault of ours" in caplog.text


def test_a_store_with_a_size_leaves_the_rest_of_the_disk_to_others() -> None:
    rules = BrokerConfig().with_settings({"maxStoreBytes": str(4 << 30)}).retention
    roomy = DiskSpace(total=1000 << 30, free=40 << 30, usable=40 << 30)
    short = DiskSpace(total=1000 << 30, free=2 << 30, usable=2 << 30)
    assert judge(rules, 1, [roomy], 1 << 30, by_hand=False) == (False, False, False, 0)
    assert judge(rules, 1, [short], 1 << 30, by_hand=False) == (True, True, True, 100)
    assert judge(rules, 1, [short], 3 << 30, by_hand=False) == (False, False, False, 0)
    full = DiskSpace(total=1000 << 30, free=1 << 20, usable=1 << 20)
    assert judge(rules, 1, [full], 4 << 30, by_hand=False).is_full


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (75, 85, 90)),
        ({"diskMaxUsedSpaceRatio": "5", "diskSpaceCleanForciblyRatio": "99"}, (10, 85, 90)),
        ({"diskMaxUsedSpaceRatio": "99", "diskSpaceWarningLevelRatio": "20"}, (95, 85, 35)),
        ({"rocketmq.broker.diskSpaceWarningLevelRatio": "0.8"}, (75, 85, 80)),
        ({"rocketmq.broker.diskSpaceCleanForciblyRatio": " 0.99 "}, (75, 85, 90)),
    ],
)
def test_the_ratios_are_those_that_rocketmq_uses(given: dict[str, str], expected: tuple[int, int, int]) -> None:
    rules = BrokerConfig().with_settings(given).retention
    assert (rules.max_used_percent, rules.clean_percent, rules.warning_percent) == expected


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4", {4}), ("04;16; 23", {4, 16, 23}), ("", set()), ("99", {99})]
)
def test_hours(text: str, hours: set[int]) -> None:
    assert hours_of(text) == hours


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deleteWhen", "noon"),
        ("maxStoreBytes", "1000"),
        ("fileReservedTime", "-1"),
        ("cleanResourceInterval", "0"),
        ("deleteFileBatchMax", "0"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio", "most"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio", "nan"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        BrokerConfig().with_settings({name: value})


@pytest.mark.parametrize(
    ("total", "free", "usable", "percent"), [(100, 50, 50, 50), (1000, 99, 99, 91), (100, 50, 25, 67)]
)
def test_the_used_part_is_rounded_as_java_does(total: int, free: int, usable: int, percent: int) -> None:
    assert DiskSpace(total, free, usable).used_percent == percent


def test_the_space_of_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    space = files.space("commitlog/deep")
    assert 0 < space.usable <= space.free <= space.total
    files.open("commitlog/1", 10).write(0, b"x")
    modified_ms = files.modified_ms("commitlog/1")
    assert modified_ms is not None
    assert modified_ms > NOW_MS
    assert files.modified_ms("commitlog/2") is None
    files.retire("commitlog/1")()
    assert files.names("commitlog") == files.names("removed") == []
