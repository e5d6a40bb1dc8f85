"""Ids made of content: equal for the same rows at the same place, different otherwise."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.columnar import content_ids
from tests.support.wire_forms import decode_unique_id

MAP = pa.map_(pa.string(), pa.string())
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


def ids(bodies: list[bytes], seed: bytes = b"q/0/0", first: int = 0, **columns: pa.Array) -> list[str]:
    keys: list[str] = content_ids(pa.record_batch({"body": pa.array(bodies), **columns}), seed, first).to_pylist()
    return keys


def test_they_are_unique_keys_without_a_time() -> None:
    (content_id,) = ids([b"x"])
    assert decode_unique_id(content_id).month_ms == 0
    assert len(content_id) == 32


@given(BODIES, st.data())
def test_they_do_not_depend_on_how_rows_come_in_batches(bodies: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(bodies)))
    assert ids(bodies[:cut]) + ids(bodies[cut:], first=cut) == ids(bodies)
    rows = pa.record_batch({"body": pa.array([b"before", *bodies])})
    assert content_ids(rows.slice(1), b"q/0/0", 0).to_pylist() == ids(bodies)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_another_body_has_another_id(body: bytes, other: bytes) -> None:
    assert (ids([body]) == ids([other])) == (body == other)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_every_bit_counts(body: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    assert ids([bytes(changed)]) != ids([body])


def test_position_and_seed_count() -> None:
    assert len({*ids([b"x"] * 1000), *ids([b"x"] * 1000, seed=b"q/0/1"), *ids([b"x"] * 1000, seed=b"q/1/0")}) == 3000


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("tags", pa.string(), [None, "a", "b", "ab"]),
        ("keys", pa.list_(pa.string()), [None, [], ["a"], ["a", "b"], ["b", "a"], ["ab"], ["a", None]]),
        ("properties", MAP, [None, [], [("a", "b")], [("b", "a")], [("a", "b"), ("c", "d")], [("a", "d"), ("c", "b")]]),
        ("flag", pa.int32(), [None, 0, 1, -1]),
        ("deliverAt", pa.timestamp("us", "UTC"), [None, 0, 1]),
    ],
)
def test_every_column_counts(name: str, kind: pa.DataType, values: list[Any]) -> None:
    row_ids = [ids([b"x"], **{name: pa.array([value], kind)})[0] for value in values]
    assert len(set(row_ids)) == len(values)
    column = pa.array([values[-1], *values], kind)  # the same at any place of a larger column
    rows = pa.record_batch({"body": pa.array([b"x"] * len(column)), name: column})
    assert [content_ids(rows.slice(at, 1), b"q/0/0", 0)[0].as_py() for at in range(1, len(column))] == row_ids


def test_the_same_text_in_another_column_is_another_content() -> None:
    assert ids([b"x"], tags=pa.array(["a"])) != ids([b"x"], keys=pa.array(["a"]))


def test_many_like_bodies_have_an_id_each() -> None:
    rows = pa.record_batch({"body": pa.array([b"%08d" % number for number in range(100_000)])})
    at_one_place = {content_ids(rows.slice(at, 1), b"s", 0)[0].as_py() for at in range(500)}
    assert len(at_one_place) == 500
    assert len(set(content_ids(rows, b"s", 0).to_pylist())) == 100_000


def test_bodies_of_very_different_lengths_have_the_ids_they_have_alone() -> None:
    lengths = [1, 100_000, 7, 8, 9, 64, 64, 0, 2_000_000, 4097, *range(500, 1500, 7)]
    bodies = [bytes([number % 251]) * length for number, length in enumerate(lengths)]
    together = ids(bodies)
    assert len(set(together)) == len(bodies)
    assert [ids([body], first=number)[0] for number, body in enumerate(bodies)] == together
