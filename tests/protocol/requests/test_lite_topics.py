"""The administrative requests of lite topics: both ways, garbage, and what a broker of 5.5.0 answered."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.requests.figures.lite_topics import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteInfo,
    LiteLag,
    LiteSubscriber,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)
from pyrmq_core.protocol.requests.figures.topic_stats import TopicOffset
from pyrmq_core.protocol.requests.groups.consume_stats import OffsetWrapper
from tests.protocol.conversations import Said, assert_garbage_is_named, assert_json_garbage_is_named, assert_survives

REQUESTS: list[Said] = [
    GetBrokerLiteInfo(),
    GetParentTopicInfo("orders"),
    GetLiteTopicInfo("orders", "s-0"),
    GetLiteClientInfo("orders", "g", "c", 5),
    GetLiteGroupInfo("g", "s-0", 5),
    TriggerLiteDispatch("g", "c"),
]
# Bodies of a broker of 5.5.0, and what they say.
ANSWERS: list[tuple[LiteInfo, str]] = [
    (
        BrokerLiteInfo({"orders": 30}, {"orders": ("g",)}, "default", 20000, 2, 2, 2, 7, 2, 1),
        '{"cqTableSize":7,"currentLmqNum":2,"eventMapSize":1,"groupMeta":{"orders":["g"]},"liteSubscriptionCount":2,'
        '"maxLmqNum":20000,"offsetTableSize":2,"orderInfoCount":2,"storeType":"default","topicMeta":{"orders":30}}',
    ),
    (
        ParentTopicInfo("orders", 30, ("g",), 2, 2),
        '{"groups":["g"],"liteTopicCount":2,"lmqNum":2,"topic":"orders","ttl":30}',
    ),
    (
        LiteTopicInfo("orders", "s-0", (LiteSubscriber("c", "g"),), TopicOffset(0, 3, 1796006910482), True),
        '{"liteTopic":"s-0","parentTopic":"orders","shardingToBroker":true,"subscriber":[{"clientId":"c","group":"g"}],'
        '"topicOffset":{"lastUpdateTimestamp":1796006910482,"maxOffset":3,"minOffset":0}}',
    ),
    (
        LiteClientInfo("orders", "g", "c", 1796006912834, 0, 1, ("%LMQ%$orders$s-0",)),
        '{"clientId":"c","group":"g","lastAccessTime":1796006912834,"lastConsumeTime":0,"liteTopicCount":1,'
        '"liteTopicSet":["%LMQ%$orders$s-0"],"parentTopic":"orders"}',
    ),
    (
        LiteClientInfo("orders", "g", "none", -1, 0, -1),
        '{"clientId":"none","group":"g","lastAccessTime":-1,"lastConsumeTime":0,"liteTopicCount":-1,'
        '"parentTopic":"orders"}',
    ),
    (
        LiteGroupInfo("g", "orders", None, 6, -1, None, (LiteLag("s-0", 3, 1796006910171),), ()),
        '{"earliestUnconsumedTimestamp":-1,"group":"g","lagCountTopK":[{"earliestUnconsumedTimestamp":1796006910171,'
        '"lagCount":3,"liteTopic":"s-0"}],"lagTimestampTopK":[],"parentTopic":"orders","totalLagCount":6}',
    ),
    (
        LiteGroupInfo("g", "orders", "s-0", 3, 1796006910171, OffsetWrapper(3, 0, 0, 0)),
        '{"earliestUnconsumedTimestamp":1796006910171,"group":"g","liteTopic":"s-0","liteTopicOffsetWrapper":'
        '{"brokerOffset":3,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0},"parentTopic":"orders",'
        '"totalLagCount":3}',
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda said: type(said).__name__)
@given(data=st.data())
def test_a_request_survives_and_garbage_is_named(request_: Said, data: st.DataObject) -> None:
    assert_survives(request_, Serialization.JSON)
    assert_garbage_is_named(type(request_), request_, data)


@pytest.mark.parametrize(("answer", "body"), ANSWERS)
def test_answers_are_those_of_rocketmq(answer: LiteInfo, body: str) -> None:
    assert type(answer).from_command(Command(0, body=body.encode())) == answer
    assert answer.to_command().body == body.encode()


@pytest.mark.parametrize(("answer", "body"), ANSWERS)
@given(data=st.data())
def test_a_member_that_is_garbage_is_named(answer: Any, body: str, data: st.DataObject) -> None:
    assert_json_garbage_is_named(type(answer), 0, json.loads(body), data)
