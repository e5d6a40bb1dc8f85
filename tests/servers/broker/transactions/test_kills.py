"""A kill at every write of a transaction's life: no message is lost, shown too early, or left without its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.messages.properties import MAX_STORED_PROPERTIES_BYTES, encode_properties
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.appending import appended_bytes
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_offsets import FILE_NAME, GroupOffsets
from pyrmq_core.servers.broker.transactions.half_messages import HALF_QUEUE, OP_QUEUE, HalfMessage, committed
from pyrmq_core.servers.broker.transactions.producer_checks import ProducerChecks
from pyrmq_core.servers.broker.transactions.transactions import Transactions
from tests.servers.broker.memory_files import MemoryFile, MemoryFiles
from tests.servers.broker.stores import contents, opened
from tests.servers.broker.transactions.halves import BORN_MS, HALF, HOST, PROPERTIES

SETTINGS = StoreSettings(segment_bytes=1 << 16, queue_file_bytes=20_000)
CONFIG = BrokerConfig().with_settings({"transactionTimeOut": "1000", "transactionCheckMax": "100"})
ROUND_MS = 2000
ENTRY_BYTES = 20
COMMIT, ROLLBACK, UNKNOWN = True, False, None
# What became of each local transaction: the answer to a check.
TRUTH = {b"a": COMMIT, b"b": ROLLBACK, b"c": COMMIT, b"d": ROLLBACK, b"immune": COMMIT, b"late": COMMIT}
IMMUNE = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}


class Killed(BaseException):
    """The end of the process; nothing in the broker handles it."""


@dataclass
class KillingFiles(MemoryFiles):
    """Ends the process instead of one write."""

    writes_left: int | None = None

    def open(self, path: str, size: int, *, sync_name: bool = True) -> MemoryFile:
        super().open(path, size, sync_name=sync_name)
        return KillingFile(self, path)

    def count(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Killed


class KillingFile(MemoryFile):
    """A file of `KillingFiles`."""

    def write(self, position: int, data: bytes) -> None:
        assert isinstance(self.files, KillingFiles)
        self.files.count()
        super().write(position, data)


class Asked(ProducerChecks):
    """Keeps the checks instead of sending them: `misses` are not written, and the groups in `away` have no producer."""

    def __init__(self) -> None:
        super().__init__(ClientTable(), "broker-a")
        self.halves: list[HalfMessage] = []
        self.away: set[str] = set()
        self.misses = 0

    def can_reach(self, group: str) -> bool:
        return group not in self.away

    def send(self, half: HalfMessage) -> bool:
        if self.misses:
            self.misses -= 1
            return super().send(half)  # no client is connected
        self.halves.append(half)
        return True


async def no_topic(topic: TopicConfig) -> None:
    raise AssertionError(f"{topic.topic} is not needed")


@dataclass
class Life:
    """A store, its transactions and the clock; `begin` opens the same files again."""

    files: KillingFiles
    config: BrokerConfig = CONFIG
    now_ms: int = BORN_MS + 10
    places: dict[bytes, int] = field(default_factory=dict)  # half messages that their producer knows to be stored
    ended: set[bytes] = field(default_factory=set)  # ends that were answered

    def begin(self) -> None:
        self.store = opened(self.files, SETTINGS)
        self.offsets, self.asked = GroupOffsets(self.files), Asked()
        self.offsets.load()
        self.transactions = Transactions(self.store, self.offsets, self.asked, self.config, HOST)
        self.transactions.load()

    def send(self, body: bytes, **further: str) -> None:
        properties = {**PROPERTIES, "UNIQ_KEY": body.decode(), **further}
        append = replace(HALF, pieces=[piece(0, body, encode_properties(properties).encode())])
        self.places[body] = self.store.put(append, self.now_ms).positions[0]

    def end(self, half: HalfMessage | None, state: bool | None) -> None:
        assert half is not None
        if state is not UNKNOWN:
            (self.transactions.commit if state else self.transactions.roll_back)(half, self.now_ms)
            self.ended.add(half.record.body)

    def end_own(self, body: bytes) -> None:
        self.end(self.transactions.half_at(self.places[body]), TRUTH[body])

    async def check(self, answers: Callable[[bytes], bool | None]) -> Counter[bytes]:
        """Runs a round of checks and answers them; returns which messages were checked."""
        self.now_ms += ROUND_MS
        await self.transactions.check(self.now_ms, no_topic)
        asked = self.asked.halves[:]
        self.asked.halves.clear()
        for half in asked:
            self.end(half, answers(half.record.body))
        return Counter(half.record.body for half in asked)

    def save(self) -> None:
        text = self.offsets.unsaved()
        if text is not None:
            self.files.count()
            self.files.save(f"{FOLDER}/{FILE_NAME}", text())

    def visible(self) -> Counter[bytes]:
        (bodies,) = contents(self.store, [("T", 2)]).values()
        return Counter(bodies)


async def live(life: Life) -> None:
    """Sends half messages and ends them in every order: before, between and after checks."""
    life.begin()
    for body in (b"a", b"b", b"c", b"d"):
        life.send(body)
    life.send(b"immune", **IMMUNE)
    life.send(b"late")
    life.end_own(b"a")
    life.end_own(b"b")
    await life.check(lambda body: UNKNOWN)
    life.save()
    life.end_own(b"late")
    await life.check(lambda body: TRUTH[body] if body == b"c" else UNKNOWN)
    life.end_own(b"immune")
    life.save()
    await life.check(lambda body: TRUTH[body])
    life.save()


async def settle(life: Life) -> Counter[bytes]:
    """Opens the files after the kill, and checks until nothing is left to check; returns which were checked."""
    life.files.writes_left = None
    life.begin()
    asked: Counter[bytes] = Counter()
    for _ in range(6):
        checked_bodies = await life.check(lambda body: TRUTH[body])
        asked += checked_bodies
    assert not checked_bodies
    return asked


async def test_a_whole_life() -> None:
    life = Life(KillingFiles())
    await live(life)
    assert life.visible() == {b"a": 1, b"c": 1, b"late": 1, b"immune": 1}
    life.store.abandon()
    assert await settle(life) == {}
    assert life.visible() == {b"a": 1, b"c": 1, b"late": 1, b"immune": 1}


async def test_a_kill_at_every_write() -> None:
    """An end that was answered is final. A message may be there twice only if the kill met its own commit."""
    kills, twice = 0, 0
    while True:
        life = Life(KillingFiles(writes_left=kills))
        try:
            await live(life)
        except Killed:
            kills += 1
        else:
            break
        sent, ended = set(life.places), set(life.ended)
        asked = await settle(life)
        visible = life.visible()
        assert not asked.keys() & ended, (kills, asked)
        assert {body for body in sent if TRUTH[body]} <= visible.keys(), kills
        assert not visible.keys() & {b"b", b"d"}, kills
        assert all(visible[body] == 1 for body in ended if TRUTH[body]), (kills, visible)
        doubled = [body for body, count in visible.items() if count > 1]
        assert len(doubled) <= 1, (kills, visible)
        assert all(count <= 2 for count in visible.values())
        twice += len(doubled)
    assert kills > 50
    # Two of the four writes of a commit, or of a half message that is stored again, are such a moment.
    assert 0 < twice <= 20


async def test_a_full_disk_delays_ends_and_loses_none() -> None:
    """The commit is stored and the record of its end is not: it is written at the next round, without a check."""
    life = Life(KillingFiles())
    life.begin()
    life.send(b"a")
    half = life.transactions.half_at(life.places[b"a"])
    assert half is not None
    life.files.room = appended_bytes(committed(half)) + ENTRY_BYTES + 50  # not enough for the record of its end
    life.end_own(b"a")
    assert life.visible() == {b"a": 1}
    assert await life.check(lambda body: TRUTH[body]) == {}
    assert life.store.reader.bounds(OP_QUEUE) == (0, 0)
    life.files.room = None
    assert await life.check(lambda body: TRUTH[body]) == {}
    assert life.store.reader.bounds(OP_QUEUE) == (0, 1)
    life.store.abandon()
    assert await settle(life) == {}
    assert life.visible() == {b"a": 1}


async def test_progress_beyond_a_shorter_queue_is_moved_back() -> None:
    """After a power failure the table may know of half messages that the log has lost; later ones are not skipped."""
    life = Life(KillingFiles())
    life.begin()
    life.send(b"a")
    life.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 3)
    life.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 9)
    life.save()
    life.store.abandon()
    life.begin()
    for body in (b"b", b"c", b"d"):
        life.send(body)
    assert (await life.check(lambda body: TRUTH[body])).keys() == {b"b", b"c", b"d"}
    assert life.visible() == {b"c": 1}


@pytest.mark.parametrize("ends_early", [False, True], ids=["when the queues are read", "before that"])
async def test_an_immune_message_ends_by_its_first_offset_after_a_restart(ends_early: bool) -> None:
    """The half message that is stored again names its first offset; nothing in memory does."""
    life = Life(KillingFiles())
    life.begin()
    life.send(b"immune", **IMMUNE)
    assert await life.check(lambda body: TRUTH[body]) == {}
    life.save()
    life.store.abandon()
    life.begin()
    if ends_early:
        life.end_own(b"immune")
    await life.transactions.read_queues(life.now_ms)
    if not ends_early:
        life.end_own(b"immune")
    life.store.abandon()
    assert await settle(life) == {}
    assert life.visible() == {b"immune": 1}


async def test_the_last_check_may_be_answered() -> None:
    """A message counts as checked too often at the round after its last check, not in the same one."""
    life = Life(KillingFiles(), CONFIG.with_settings({"transactionCheckMax": "1"}))
    life.begin()
    life.send(b"d")
    assert await life.check(lambda body: TRUTH[body]) == {b"d": 1}
    assert await life.check(lambda body: TRUTH[body]) == {}
    assert life.store.reader.bounds(("TRANS_CHECK_MAX_TIME_TOPIC", 0)) == (0, 0)


async def test_a_half_message_waits_for_a_producer_without_a_count() -> None:
    """It keeps its place until its group is back, also over a restart; others behind it are checked meanwhile."""
    life = Life(KillingFiles(), CONFIG.with_settings({"transactionCheckMax": "2"}))
    life.begin()
    life.send(b"a", PGROUP="away")
    life.send(b"b")
    life.asked.away.add("away")
    assert await life.check(lambda body: TRUTH[body]) == {b"b": 1}
    for _ in range(5):
        assert await life.check(lambda body: TRUTH[body]) == {}
    assert life.store.reader.bounds(HALF_QUEUE)[1] == 3  # the other was stored again for its check
    life.save()
    life.begin()
    assert await life.check(lambda body: UNKNOWN) == {b"a": 1}
    life.asked.away.add("away")
    for _ in range(5):
        assert await life.check(lambda body: UNKNOWN) == {}
    life.asked.away.clear()
    assert await life.check(lambda body: TRUTH[body]) == {b"a": 1}
    assert life.visible() == {b"a": 1}


async def test_waiting_half_messages_move_when_many_are_behind_them() -> None:
    """They are stored again without a count, so that no pass has to examine the queue from far back."""
    life = Life(KillingFiles(), CONFIG.with_settings({"transactionCheckMax": "2"}))
    life.begin()
    life.transactions.most_from_position = 30
    life.asked.away.add("away")
    life.send(b"a", PGROUP="away")
    for _ in range(100):
        life.send(b"b")
        await life.check(lambda body: TRUTH[body])
        position = life.offsets.committed("CID_RMQ_SYS_TRANS", *HALF_QUEUE) or 0
        assert life.store.reader.bounds(HALF_QUEUE)[1] - position <= 35
    assert life.store.reader.bounds(HALF_QUEUE)[1] <= 210  # two for each message that was checked, and few moves
    life.asked.away.clear()
    assert await life.check(lambda body: TRUTH[body]) == {b"a": 1}
    assert life.visible() == {b"a": 1}


async def test_a_check_that_was_not_written_is_not_counted() -> None:
    life = Life(KillingFiles(), CONFIG.with_settings({"transactionCheckMax": "2"}))
    life.begin()
    life.send(b"a")
    life.asked.misses = 5
    for _ in range(5):
        assert await life.check(lambda body: TRUTH[body]) == {}
    assert await life.check(lambda body: UNKNOWN) == {b"a": 1}
    assert await life.check(lambda body: TRUTH[body]) == {b"a": 1}
    assert life.visible() == {b"a": 1}


@pytest.mark.parametrize("room", [0, 25])
async def test_a_half_message_without_room_for_a_count_is_checked_at_its_place(room: int) -> None:
    """Only another broker stores such a message: RocketMQ leaves no room for what checks add to the properties."""
    life = Life(KillingFiles(), CONFIG.with_settings({"transactionCheckMax": "2", "fileReservedTime": "1"}))
    life.begin()
    properties = encode_properties({**PROPERTIES, "UNIQ_KEY": "immune", **IMMUNE, "k": ""})
    further = {**IMMUNE, "k": "v" * (MAX_STORED_PROPERTIES_BYTES - len(properties) - room)}
    life.send(b"immune", **further)
    life.send(b"c")
    assert [await life.check(lambda body: TRUTH[body]) for _ in range(2)] == [{b"c": 1}, {}]
    for _ in range(3):
        assert await life.check(lambda body: UNKNOWN) == {b"immune": 1}
    life.save()
    life.begin()
    assert await life.check(lambda body: TRUTH[body]) == {b"immune": 1}
    assert life.visible() == {b"c": 1, b"immune": 1}
    assert await life.check(lambda body: TRUTH[body]) == {}
    assert life.store.reader.bounds(("TRANS_CHECK_MAX_TIME_TOPIC", 0)) == (0, 0)


async def test_waiting_half_messages_stay_behind_one_that_cannot_be_moved() -> None:
    """Stored again, they would not free the position, and each pass would store them once more."""
    life = Life(KillingFiles())
    life.begin()
    life.transactions.most_from_position = 5
    life.asked.away.add("away")
    properties = encode_properties({**PROPERTIES, "UNIQ_KEY": "c", "PGROUP": "away", "k": ""})
    life.send(b"c", PGROUP="away", k="v" * (MAX_STORED_PROPERTIES_BYTES - len(properties)))
    life.send(b"a", PGROUP="away")
    for _ in range(40):
        life.send(b"b")
        await life.check(lambda body: TRUTH[body])
    assert life.store.reader.bounds(HALF_QUEUE)[1] <= 2 + 2 * 40  # two for each that was checked, and no move
    life.asked.away.clear()
    assert await life.check(lambda body: TRUTH[body]) == {b"c": 1, b"a": 1}
