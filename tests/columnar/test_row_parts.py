"""Parts of many rows joined: the same bytes for elements of one size and of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.columnar import BatchLimit
from pyrmq_core.columnar.encoding.encode import encode_columns, encode_messages
from pyrmq_core.columnar.encoding.row_parts import FixedWidth, IdsOfRows, OptionalConstant, ids_of, joined
from pyrmq_core.columnar.encoding.sink_rows import outgoing_rows
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.message_id import IdRun

TEXTS = ["keys", "tags", "shardingKey"]


def test_what_is_null_adds_nothing() -> None:
    assert joined([b"a", pa.array([b"x", None]), b"c"], 0, 2).to_pylist() == [b"axc", b"ac"]


def test_ids_are_read_one_by_one_and_as_a_slice() -> None:
    parts = [
        b"ID",
        FixedWidth("S2", np.array([b"1a", b"2b", b"3c", b"4d"])),
        OptionalConstant(b"-", np.array([True, False, True, True])),
        pa.array([b"w", b"xx", None, b"z"]),
    ]
    ids = IdsOfRows(parts, 1, 4)
    assert (len(ids), ids[0], ids[-1]) == (3, "ID2bxx", "ID4d-z")
    assert list(ids) == list(ids[:]) == ["ID2bxx", "ID3c-", "ID4d-z"]
    assert ids[1:] == ["ID3c-", "ID4d-z"]


@given(
    uniform=st.sets(st.sampled_from(["body", *TEXTS])),
    named=st.sets(st.sampled_from(TEXTS)),
    empty=st.booleans(),
    skipped=st.integers(0, 3),
)
def test_columns_whose_elements_have_one_size(uniform: set[str], named: set[str], empty: bool, skipped: int) -> None:
    """They take other paths: as values of fixed width, or with the body as if it were their separator."""

    def text(name: str, row: int) -> str:
        return f"{name[0]}{row:03}" if name in uniform else f"{row:03}" * (1 + row % 3)

    rows: list[dict[str, Any]] = [
        {"body": text("body", row).encode(), **{name: text(name, row) for name in named}} for row in range(14)
    ]
    if empty and named:
        rows[7][min(named)] = None
    kinds = {"body": pa.binary(), **dict.fromkeys(named, pa.string())}
    batch = pa.record_batch({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    slice_rows = outgoing_rows(batch.slice(skipped, 10))
    ids = ids_of(lambda count: [IdRun("0" * 28, 0xFFFE, count)], 10)
    (by_columns,) = encode_columns(slice_rows, "orders", ids, BatchLimit(), alone=False, waits=True)
    (by_messages,) = encode_messages(slice_rows, "orders", ids, BatchLimit(), alone=False, waits=True)
    assert bytes(by_columns.body) == bytes(by_messages.body)
    bodies = [bytes(item.body) for item in iterate_batch_body(by_columns.body)]
    assert bodies == [row["body"] for row in rows[skipped : skipped + 10]]
