"""The index of keys in small steps, in which a record enters in parts: the bytes are Java's, wherever a step ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.index import key_index, step_bounds
from pyrmq_core.servers.broker.store.index.index_file import Layout
from tests.servers.broker.indexed_stores import IndexedStore, Keyed, keyed
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS
from tests.servers.broker.test_key_index import Room, check, do, ordinary, properties_of, rooms

# Some words have one hash, and a file takes 7 entries.
LONG = st.lists(st.sampled_from(("a", "b", "Aa", "BB")), min_size=4, max_size=12)
long_properties = st.builds(properties_of, LONG, st.sampled_from(["", "id0"]), st.sampled_from(["", "a"]))
long_sends = st.builds(Keyed, st.lists(long_properties, min_size=1, max_size=3).map(tuple), st.sampled_from(["T", "U"]))
MANY_WORDS = " ".join(["k"] * 16_000)
LARGE = Layout(slots=50, entries=200_000)


def set_small_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step_bounds, "KEYS_AT_ONCE", 3)
    patch.setattr(step_bounds, "WEIGHT_AT_ONCE", 60)


def do_or_step(indexed_store: IndexedStore, action: Keyed | Room | str, clock: list[int]) -> IndexedStore:
    """Does what another test does, or makes one step."""
    if action != "step":
        return do(indexed_store, action, clock)
    try:
        indexed_store.step()
    except StoreError:
        assert not indexed_store.index.is_live
    return indexed_store


@given(st.lists(st.one_of(long_sends, st.just("step"), st.just("step"), ordinary, rooms), max_size=40))
def test_a_step_may_be_the_last_one_anywhere(actions: list[Keyed | Room | str]) -> None:
    files, clock = MemoryFiles(), [NOW_MS]
    with pytest.MonkeyPatch.context() as patch:
        set_small_steps(patch)
        patch.setattr(key_index, "MOST_WAITING_BYTES", 600)
        indexed_store = IndexedStore(files)
        for action in actions:
            indexed_store = do_or_step(indexed_store, action, clock)
        files.room = None
        indexed_store.store.dispatch(indexed_store.store.end)
        check(indexed_store)


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("end", ["kill", "stop", "fall behind"])
@pytest.mark.parametrize("steps", range(7))
def test_a_record_ends_right_after_any_part(
    steps: int, end: str, is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record has 14 entries, of which 5 fill a file."""
    set_small_steps(monkeypatch)
    files = MemoryFiles()
    indexed_store = IndexedStore(files)
    indexed_store.put(keyed("a b"))
    if is_live:
        indexed_store.settle()
    indexed_store.put(Keyed((properties_of(["a", "b", "Aa"] * 4, "id0", "a"),)))
    indexed_store.put(keyed("b"))
    for _ in range(steps):
        indexed_store.step()
    match end:
        case "kill":
            indexed_store.store.abandon()
            indexed_store = IndexedStore(files)
        case "stop":
            indexed_store.stop()
            indexed_store = IndexedStore(files)
        case _:
            with monkeypatch.context() as patch:
                patch.setattr(key_index, "MOST_WAITING_BYTES", 0)
                indexed_store.put(keyed("a"))
            assert not indexed_store.index.is_live
    indexed_store.settle()
    indexed_store.put(keyed("a b Aa BB"))
    check(indexed_store)


def test_messages_that_come_while_the_index_catches_up_enter_whole() -> None:
    indexed_store = IndexedStore(MemoryFiles())
    indexed_store.put(keyed("a b"))
    indexed_store.settle()
    indexed_store.stop()
    indexed_store = IndexedStore(indexed_store.files)
    indexed_store.put(keyed("a b"))
    while len(indexed_store.find("a")) < 2:
        indexed_store.step()
    indexed_store.put(keyed("a b"))
    check(indexed_store)


def entries_by_step(steps: Iterator[object], indexed_store: IndexedStore) -> list[int]:
    """Returns how many entries of the word k each step makes."""
    counts = [len(indexed_store.find("k", 1 << 20)) for _ in steps]
    return [after - before for before, after in itertools.pairwise([0, *counts])]


def waiting_steps(indexed_store: IndexedStore) -> Iterator[None]:
    while indexed_store.index.has_waiting:
        indexed_store.index.step()
        yield


# One message of 16,000 words, a batch of 16 and single messages with as many together, and a batch of short ones.
@pytest.mark.parametrize(
    ("sends", "words"),
    [
        ([[MANY_WORDS]], 16_000),
        ([[MANY_WORDS[:2000]] * 16], 16_000),
        ([[MANY_WORDS[:2000]]] * 16, 16_000),
        ([["k"] * 3000], 3000),
    ],
)
def test_a_step_enters_a_bounded_number_of_words(sends: list[list[str]], words: int) -> None:
    indexed_store = IndexedStore(MemoryFiles(), LARGE, segment_bytes=1 << 20)
    indexed_store.settle()
    for words_of_messages in sends:
        indexed_store.put(keyed(*words_of_messages))
    live = entries_by_step(waiting_steps(indexed_store), indexed_store)
    behind = IndexedStore(MemoryFiles(), LARGE, segment_bytes=1 << 20)
    for words_of_messages in sends:
        behind.put(keyed(*words_of_messages))
    caught_up = entries_by_step(behind.index.catch_up(), behind)
    for entries in (live, caught_up):
        assert sum(entries) == words
        assert max(entries) <= 2048
    indexed_store.stop()
    behind.stop()
    assert indexed_store.contents() == indexed_store.java().contents() == behind.contents()


def test_a_step_without_words_ends_with_its_bytes_alone() -> None:
    assert step_bounds.count_of_step([b"x" * 100] * 400) == 327
    assert step_bounds.count_of_step([b"x" * 40_000, b"x"]) == 1
    assert step_bounds.count_of_step([b"x"] * 3) == 3
