"""Offsets of a queue: four requests, two forms of answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Serialization
from pyrmq_core.protocol.requests.broker.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    StoreTimeFound,
)
from tests.protocol.conversations import SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT

BROKER = st.none() | SOME_TEXT
SAID: st.SearchStrategy[Said] = st.one_of(
    st.builds(GetMaxOffset, SOME_TEXT, INT32, st.booleans(), BROKER),
    st.builds(GetMinOffset, SOME_TEXT, INT32, BROKER),
    st.builds(SearchOffset, SOME_TEXT, INT32, INT64, st.sampled_from(["LOWER", "UPPER"]), BROKER),
    st.builds(GetEarliestStoreTime, SOME_TEXT, INT32, BROKER),
    st.builds(OffsetFound, INT64),
    st.builds(StoreTimeFound, INT64),
)


@given(SAID, SERIALIZATIONS)
def test_both_sides_survive(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.data(), SAID)
def test_garbage_is_named(data: st.DataObject, said: Said) -> None:
    assert_garbage_is_named(type(said), said, data)


def test_what_4_9_does_not_send_has_javas_meaning() -> None:
    assert GetMaxOffset.from_command(GetMaxOffset("T", 0, None).to_command()).committed is True
    assert SearchOffset.from_command(SearchOffset("T", 0, 5, None).to_command()).boundary_type == "LOWER"
