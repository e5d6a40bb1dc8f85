"""Bodies compared with bytes and regular expressions by columns: the same messages as one by one."""

from __future__ import annotations

import re
from itertools import zip_longest

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.columnar import offsets_containing, offsets_matching, parts_to_match
from pyrmq_core.columnar.decoding.body_matches import MATCHED_BYTES

BODIES = st.lists(st.binary(max_size=20) | st.text("ab\u00e9\n", max_size=20).map(str.encode), max_size=30)


def batch_of(bodies: list[bytes], start: int = 7) -> pa.RecordBatch:
    offsets = pa.array(range(start, start + len(bodies)), pa.int64())
    return pa.record_batch([offsets, pa.array(bodies, pa.binary())], ["queueOffset", "body"])


@given(BODIES, st.sampled_from([b"a", b"ab", b"\n", "\u00e9".encode(), b"\xff"]))
def test_bytes_in_a_body(bodies: list[bytes], needle: bytes) -> None:
    assert offsets_containing(batch_of(bodies), needle) == [7 + n for n, body in enumerate(bodies) if needle in body]


@given(BODIES, st.sampled_from(["a+b", "^a", r"b\Z", "\u00e9.a", "(?i)A", "[^a]b", "(?m)^b", r"\bab"]))
def test_a_pattern_in_a_body_that_is_utf_8(bodies: list[bytes], pattern: str) -> None:
    texts = [body.decode("ascii", "replace").replace("\ufffd", "\u00e9").encode() for body in bodies]
    expected = [7 + n for n, body in enumerate(texts) if re.search(pattern, body.decode(), re.ASCII)]
    assert offsets_matching(batch_of(texts), pattern.replace(r"\Z", r"\z")) == expected


def test_other_bytes_match_nothing_but_what_is_beside_them() -> None:
    bodies = [b"\xffabc\xfe", b"\xe9", b"a\xffb"]
    assert offsets_matching(batch_of(bodies), "abc") == [7]
    assert offsets_matching(batch_of(bodies), "a.b") == []


def test_the_first_64_kib_are_compared() -> None:
    bodies = [
        b"x" * MATCHED_BYTES + b"late",
        b"x" * (MATCHED_BYTES - 4) + b"late",
        b"x" * (MATCHED_BYTES - 1) + b"\xc3\xa9",
    ]
    assert offsets_matching(batch_of(bodies), "late") == [8]
    assert offsets_matching(batch_of(bodies), "x$|\u00e9") == [7]


@given(
    st.lists(
        st.sampled_from([0, 1, 100, MATCHED_BYTES // 2, MATCHED_BYTES - 1, MATCHED_BYTES, 3 * MATCHED_BYTES]),
        max_size=12,
    )
)
def test_parts_have_64_kib_to_compare_or_one_message(lengths: list[int]) -> None:
    batch = batch_of([b"x" * length for length in lengths])
    parts = list(parts_to_match(batch))
    assert [offset for part in parts for offset in part.column("queueOffset").to_pylist()] == [
        *range(7, 7 + len(lengths))
    ]
    for part, following in zip_longest(parts, parts[1:]):
        compared = [min(len(body.as_py()), MATCHED_BYTES) for body in part.column("body")]
        assert len(part) == 1 or sum(compared) <= MATCHED_BYTES
        if following is not None:
            first = min(len(following.column("body")[0].as_py()), MATCHED_BYTES)
            assert sum(compared) + first > MATCHED_BYTES
