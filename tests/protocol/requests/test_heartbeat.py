"""Heartbeats: Java's bodies, members of wrong types, and leaving."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.requests.broker.heartbeat import (
    ConsumerData,
    HeartBeat,
    HeartBeatAnswer,
    SubscriptionData,
    UnregisterClient,
)
from tests.protocol.conversations import (
    SERIALIZATIONS,
    Said,
    assert_garbage_is_named,
    assert_json_garbage_is_named,
    assert_survives,
)
from tests.protocol.strategies import INT32, INT64, SOME_TEXT, TEXT
from tests.support import golden

TAGS = ("TagA", "TagB")
CONSUMER = ConsumerData(
    "CG",
    consume_type="CONSUME_PASSIVELY",
    subscriptions=(
        SubscriptionData("TopicTest", "TagA || TagB", TAGS, tuple(map(string_hash_code, TAGS)), 1700000000000),
    ),
)
SUBSCRIPTIONS = st.builds(
    SubscriptionData,
    TEXT,
    TEXT,
    st.lists(TEXT, max_size=3).map(tuple),
    st.lists(INT32, max_size=3).map(tuple),
    INT64,
    SOME_TEXT,
    st.booleans(),
)
CONSUMERS = st.builds(
    ConsumerData, TEXT, TEXT, TEXT, TEXT, st.lists(SUBSCRIPTIONS, max_size=2).map(tuple), st.booleans()
)
HEARTBEATS = st.builds(
    HeartBeat, SOME_TEXT, st.lists(TEXT, max_size=3).map(tuple), st.lists(CONSUMERS, max_size=2).map(tuple)
)
FIELDS_ONLY: st.SearchStrategy[Said] = st.one_of(
    st.builds(UnregisterClient, SOME_TEXT, st.none() | SOME_TEXT, st.none() | SOME_TEXT),
    st.builds(HeartBeatAnswer, st.none() | st.booleans(), st.none() | st.booleans()),
)


@pytest.mark.parametrize(
    ("title", "heartbeat"),
    [
        ("heartbeat", HeartBeat("10.0.0.1@123#456", ("PG",))),
        ("heartbeat consumer", HeartBeat("10.0.0.1@123#456", ("PG",), (CONSUMER,))),
    ],
)
def test_javas_bodies(title: str, heartbeat: HeartBeat) -> None:
    body = golden.vectors()[title].encode()
    assert HeartBeat.from_command(Command(RequestCode.HEART_BEAT, body=body)) == heartbeat
    assert heartbeat.to_command().body == body


@given(HEARTBEATS, SERIALIZATIONS)
def test_heartbeats_survive(heartbeat: HeartBeat, serialization: Serialization) -> None:
    assert_survives(heartbeat, serialization)


@given(FIELDS_ONLY, SERIALIZATIONS)
def test_the_rest_survives(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.data(), st.sampled_from(["heartbeat", "heartbeat consumer"]))
def test_members_of_wrong_types_are_named(data: st.DataObject, title: str) -> None:
    assert_json_garbage_is_named(HeartBeat, RequestCode.HEART_BEAT, json.loads(golden.vectors()[title]), data)


@given(st.data(), HEARTBEATS | FIELDS_ONLY)
def test_garbage_is_named(data: st.DataObject, said: Said) -> None:
    assert_garbage_is_named(type(said), said, data)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"clientID":"c","producerDataSet":7}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b'{"clientID":"c","consumerDataSet":[7]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","codeSet":["x"]}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subVersion":1e999}]}]}',
    ],
    ids=range(9),
)
def test_what_is_no_heartbeat_is_reported(body: bytes) -> None:
    with pytest.raises(BodyError, match=r"^heartbeat: "):
        HeartBeat.from_command(Command(RequestCode.HEART_BEAT, body=body))
