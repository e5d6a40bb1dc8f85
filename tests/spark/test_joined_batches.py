"""Batches that are joined: the same rows in the same order, and not more held back than a bound."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_spark.read.partition_reader import ENOUGH_BYTES, ENOUGH_ROWS, in_fewer_batches


def batch(rows: int, size: int = 1) -> pa.RecordBatch:
    bodies = pa.array([b"x" * size] * rows, pa.binary())
    return pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64()), "body": bodies})


@given(lengths=st.lists(st.integers(0, 1500), max_size=12))
def test_rows_and_their_order_stay(lengths: list[int]) -> None:
    joined = list(in_fewer_batches(iter([batch(rows) for rows in lengths])))
    assert [n for part in joined for n in part.column(0).to_pylist()] == [n for rows in lengths for n in range(rows)]
    assert all(part.num_rows >= ENOUGH_ROWS for part in joined[:-1])


def test_a_large_batch_alone_is_not_copied() -> None:
    large = batch(ENOUGH_ROWS)
    (part,) = in_fewer_batches(iter([large]))
    assert part is large


def test_large_bodies_are_not_held_back() -> None:
    source = iter([batch(1, ENOUGH_BYTES), batch(1)])
    joined = in_fewer_batches(source)
    assert next(joined).num_rows == 1
    assert next(source).num_rows == 1
