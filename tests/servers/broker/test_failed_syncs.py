"""Every step towards the medium fails once: acknowledged messages are there afterwards, deleted topics are not."""

from collections.abc import Callable, Iterator

import pytest

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent, opened, put, read

STEPS = (
    *("A0", "B0", "flush", "A0", "A1", "flush log", "B0", "flush queues", "A0", "delete B", "A1", "B0", "flush log"),
    *("C0", "flush", "A0", "delete C", "flush queues", "A1", "A1", "flush", "B0", "C0", "flush log"),
)
QUEUES = [("A", 0), ("A", 1), ("B", 0), ("C", 0)]
Model = dict[tuple[str, int], list[bytes]]


class Scenario:
    """A store that does the steps until one fails, and a plain list of the messages acknowledged and not deleted.

    `synced` is the least part of each list on the medium, `deleting` a topic whose deletion was not confirmed.
    """

    def __init__(self, files: Files) -> None:
        self.store = opened(files)
        self.kept: Model = {key: [] for key in QUEUES}
        self.synced: Model = {key: [] for key in QUEUES}
        self.deleting = ""

    def run(self) -> None:
        for number, step in enumerate(STEPS):
            self._do(number, step)

    def _do(self, number: int, step: str) -> None:
        store = self.store
        match step.split():
            case ["flush"]:
                store.flush()
                self._is_synced()
            case ["flush", "log"]:
                end, syncs = store.unsynced()
                self._call(syncs)
                store.synced(end)
                self._is_synced()
            case ["flush", "queues"]:
                mark = store.synced_mark
                self._call(store.unsynced_queues())
                store.synced_queues()
                store.mark_safe(mark)
                self._call(store.unsynced_mark())
                store.publish_mark()
            case ["delete", topic]:
                self.deleting = topic
                store.delete_topic(topic)
                self.deleting = ""
                for key in QUEUES:
                    if key[0] == topic:
                        self.kept[key] = []
                self._is_synced()
            case [name]:
                key, body = (name[0], int(name[1])), b"%d" % number * 20
                put(store, Sent(*key, (body,)))
                self.kept[key].append(body)

    def _call(self, syncs: list[Callable[[], None]]) -> None:
        """Calls the syncs as the flusher does: the store fails with the first error."""
        try:
            for sync in syncs:
                sync()
        except StoreError as error:
            self.store.fail(str(error))
            raise

    def _is_synced(self) -> None:
        self.synced = {key: list(bodies) for key, bodies in self.kept.items()}


def failing_at(number: int) -> tuple[MemoryFiles, ForgetfulFiles, Scenario | None]:
    """Runs the scenario until its step `number` towards the medium failed.

    The scenario is None when that was at its opening.
    """
    memory = MemoryFiles(fails_at=number)
    files = ForgetfulFiles(memory)
    try:
        scenario = Scenario(files)
    except StoreError:
        return memory, files, None
    try:
        scenario.run()
    except StoreError:
        if scenario.store.failure:  # otherwise a file could not be made, and nothing was lost
            with pytest.raises(StoreError, match="Input/output error"):
                put(scenario.store, Sent("A", 0, (b"never",)))
    return memory, files, scenario


def failures() -> Iterator[int]:
    memory = MemoryFiles()
    Scenario(ForgetfulFiles(memory)).run()
    assert len(memory.syncs) > 30
    return iter(range(1, len(memory.syncs) + 1))


def ended(store: MessageStore, how: str) -> None:
    if how == "stop":
        try:
            store.close()
        except StoreError:
            store.abandon()
    else:
        store.abandon()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_acknowledged_is_there_after_a_failed_sync(how: str) -> None:
    for number in failures():
        _, files, scenario = failing_at(number)
        if scenario is None:
            continue
        ended(scenario.store, how)
        assert_model(opened(files), scenario.kept, scenario.deleting, exact=True)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_synced_is_there_after_a_failed_sync_and_a_power_cut(how: str) -> None:
    for number in failures():
        _, files, scenario = failing_at(number)
        if scenario is None:
            continue
        ended(scenario.store, how)
        files.power_cut()
        assert_model(opened(files), scenario.synced, scenario.deleting, exact=False)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_a_new_start_found_is_on_the_medium(how: str) -> None:
    """Pages that a failed sync dropped are written again by recovery: a later power cut finds them."""
    for number in failures():
        _, files, scenario = failing_at(number)
        if scenario is None:
            continue
        ended(scenario.store, how)
        opened(files).abandon()
        files.power_cut()
        assert_model(opened(files), scenario.kept, scenario.deleting, exact=True)


def assert_model(store: MessageStore, model: Model, deleting: str, *, exact: bool) -> None:
    for key, bodies in model.items():
        stored_bodies = [record.body for record in read(store, *key)]
        if key[0] == deleting:
            assert stored_bodies in (bodies, []) or set(stored_bodies) >= set(bodies)
        elif exact:
            assert stored_bodies == bodies, key
        else:
            assert stored_bodies[: len(bodies)] == bodies, key


def test_a_failed_sync_in_a_deletion_ends_storing() -> None:
    memory = MemoryFiles()
    store = opened(memory)
    put(store, Sent("A", 0, (b"1",)), Sent("B", 0, (b"1",)))
    memory.fails_at = len(memory.syncs) + 1
    with pytest.raises(StoreError, match="Input/output error"):
        store.delete_topic("A")
    with pytest.raises(StoreError, match="Input/output error"):
        put(store, Sent("B", 0, (b"2",)))
    store.abandon()
    assert [record.body for record in read(opened(memory), "B", 0)] == [b"1"]


def test_a_full_disk_that_refuses_the_mark_of_a_deletion_changes_nothing() -> None:
    memory = MemoryFiles()
    store = opened(memory)
    put(store, Sent("A", 0, (b"1",)), Sent("B", 0, (b"1",)))
    memory.room = 0
    with pytest.raises(StoreError, match="no space left"):
        store.delete_topic("A")
    assert [record.body for record in read(store, "A", 0)] == [b"1"]
    memory.room = None
    put(store, Sent("A", 0, (b"2",)), Sent("B", 0, (b"2",)))
    store.abandon()
    store = opened(memory)
    assert [record.body for record in read(store, "A", 0)] == [b"1", b"2"]
    store.delete_topic("A")
    store.abandon()
    store = opened(memory)
    assert store.reader.bounds(("A", 0)) == (0, 0)
    assert [record.body for record in read(store, "B", 0)] == [b"1", b"2"]


def test_a_deletion_that_is_refused_keeps_the_messages_that_are_not_readable_yet() -> None:
    """Messages of the topic that was to be deleted are kept, too: they are acknowledged."""
    memory = MemoryFiles()
    store = opened(memory)
    messages = Sent("A", 0, (b"1",)), Sent("B", 0, (b"1",))
    put(store, *messages)
    memory.room = store.end - store.start
    store.put_all([sent.append() for sent in messages], NOW_MS)
    assert store.reader.bounds(("A", 0)) == (0, 1)
    with pytest.raises(StoreError, match="nothing is deleted"):
        store.delete_topic("A")
    memory.room = None
    store.flush()
    store.dispatch(store.end)
    for topic in "AB":
        assert [record.body for record in read(store, topic, 0)] == [b"1", b"1"]


def test_a_deletion_while_queues_are_synced_waits_for_them_itself() -> None:
    """The flusher's syncs are under way, and their data is not on the medium yet when the mark is written."""
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    put(store, Sent("A", 0, (b"1",)), Sent("B", 0, (b"1",)))
    end, syncs = store.unsynced()
    for sync in syncs:
        sync()
    store.synced(end)
    mark = store.synced_mark
    under_way = store.unsynced_queues()
    assert len(under_way) == 2
    store.delete_topic("B")
    store.mark_safe(mark)
    store.abandon()
    files.power_cut()
    store = opened(files)
    assert [record.body for record in read(store, "A", 0)] == [b"1"]
    assert store.reader.bounds(("B", 0)) == (0, 0)


def test_an_older_mark_brings_no_deleted_topic_back() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("A", 0, (b"1",)))
    store.flush()
    mark = store.synced_mark
    put(store, Sent("B", 0, (b"1",)))
    store.delete_topic("B")
    store.mark_safe(mark)
    store.abandon()
    assert opened(files).reader.bounds(("B", 0)) == (0, 0)


def test_the_mark_of_a_deletion_outlives_a_power_cut() -> None:
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    put(store, Sent("A", 0, (b"1",)), Sent("B", 0, (b"1",)))
    store.delete_topic("B")
    store.abandon()
    files.power_cut()
    store = opened(files)
    assert store.reader.bounds(("B", 0)) == (0, 0)
    assert [record.body for record in read(store, "A", 0)] == [b"1"]


def test_two_syncs_of_one_file_at_a_time_keep_what_was_written_meanwhile() -> None:
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    file = files.open("file", 2 * 4096)
    file.write(0, b"a")
    step = memory.step
    depth = 0

    def nested(path: str) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            file.write(1, b"b")
            file.sync()
            file.write(2, b"c")
        step(path)

    memory.step = nested  # type: ignore[method-assign]
    file.sync()
    files.power_cut()
    assert file.read(0, 3) == b"ab\0"


@pytest.mark.parametrize("surviving", [(), ("checkpoint",), ("checkpoint.pyrmq",)])
@pytest.mark.parametrize("steps", range(6))
def test_a_power_cut_at_any_time_leaves_a_mark_that_counts(steps: int, surviving: tuple[str, ...]) -> None:
    """RocketMQ's file with later times than the own file would look like another broker's."""
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    put(store, Sent("A", 0, (b"1",)))
    store.flush()
    put(store, Sent("A", 0, (b"2",)), now_ms=NOW_MS + 60_000)
    end, syncs = store.unsynced()
    call(syncs)
    store.synced(end)
    call(store.unsynced_queues())
    store.synced_queues()
    flushing: tuple[Callable[[], None], ...] = (
        lambda: store.mark_safe(store.synced_mark),
        lambda: call(store.unsynced_mark()),
        store.publish_mark,
        lambda: put(store, Sent("A", 0, (b"3",)), now_ms=NOW_MS + 120_000),
        store.flush,
    )
    for step in flushing[:steps]:
        step()
    store.abandon()
    files.power_cut(lambda page: page[0] in surviving)
    again = MessageStore(memory, store.settings)
    assert again.open(1).has_mark
    kept = 2 + (steps == len(flushing))
    assert [record.body for record in read(again, "A", 0)] == [b"1", b"2", b"3"][:kept]


def test_a_queue_that_is_made_during_a_sync_is_not_missed_after_a_power_cut() -> None:
    """Its file is lost, as its name was not synced: no reason to read the whole log again."""
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    put(store, Sent("A", 0, (b"1",)))
    store.flush()
    put(store, Sent("B", 0, (b"1",)))
    end, syncs = store.unsynced()
    call(syncs)
    store.synced(end)
    mark, under_way = store.synced_mark, store.unsynced_queues()
    put(store, Sent("C", 0, (b"1",)))
    call(under_way)
    store.synced_queues()
    store.mark_safe(mark)
    call(store.unsynced_mark())
    store.publish_mark()
    store.abandon()
    files.power_cut()
    again = MessageStore(memory, store.settings)
    assert again.open(1).read_from == end
    assert [again.reader.bounds((topic, 0)) for topic in "ABC"] == [(0, 1), (0, 1), (0, 0)]


def call(syncs: list[Callable[[], None]]) -> None:
    for sync in syncs:
        sync()
