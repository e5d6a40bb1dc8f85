"""Committed offsets: the query, and the commit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Serialization
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from tests.protocol.conversations import SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT

BROKER = st.none() | SOME_TEXT
SAID: st.SearchStrategy[Said] = st.one_of(
    st.builds(QueryConsumerOffset, SOME_TEXT, SOME_TEXT, INT32, st.none() | st.booleans(), BROKER),
    st.builds(UpdateConsumerOffset, SOME_TEXT, SOME_TEXT, INT32, INT64, BROKER),
)


@given(SAID, SERIALIZATIONS)
def test_both_survive(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.data(), SAID)
def test_garbage_is_named(data: st.DataObject, said: Said) -> None:
    assert_garbage_is_named(type(said), said, data)
