"""Requests of administrators about lite topics: each body and refusal is that of 5.5.0 for the same requests."""

from __future__ import annotations

from pathlib import Path

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import loads
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.requests.figures.lite_topics import (
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteGroupInfo,
    TriggerLiteDispatch,
)
from pyrmq_core.servers.broker.in_turns import STEPS_AT_ONCE
from pyrmq_core.servers.broker.processors.administration.lite_topics import MOST_LAGS
from tests.servers.broker.serving import Served, serving

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}


async def body(served: Served, request: Command) -> object:
    answer = await served.ask(request)
    assert answer.code == 0
    return loads(answer.body, "figures")


async def test_answers_are_those_of_rocketmq(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        creation = UpdateTopic("T", 4, 4, 6, attributes="+message.type=LITE,+lite.topic.expiration=30")
        assert (await served.ask(creation.to_command())).code == 0
        tables, reader = served.running.broker.tables, served.running.broker.store.reader
        tables.groups.put({"groupName": "g", "attributes": {"lite.bind.topic": "T"}}, 0)
        empty = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        named = {"liteTopic": "s", "parentTopic": "T", "shardingToBroker": True, "subscriber": []}
        assert await body(served, GetLiteTopicInfo("T", "s").to_command()) == {**named, "topicOffset": empty}
        for name in "sst":
            await served.send("T", properties=f"__LITE_TOPIC\x01{name}\x02")
        assert await body(served, GetBrokerLiteInfo().to_command()) == {
            "cqTableSize": 3,
            "currentLmqNum": 2,
            "eventMapSize": 0,
            "groupMeta": {"T": ["g"]},
            "liteSubscriptionCount": 0,
            "maxLmqNum": 20000,
            "offsetTableSize": 0,
            "orderInfoCount": 0,
            "storeType": "default",
            "topicMeta": {"T": 30},
        }
        parent = {"groups": ["g"], "liteTopicCount": 2, "lmqNum": 2, "topic": "T", "ttl": 30}
        assert await body(served, GetParentTopicInfo("T").to_command()) == parent
        times = [reader.store_time(("%LMQ%$T$s", 0), offset) for offset in (0, 1)]
        stored = {"lastUpdateTimestamp": times[1], "maxOffset": 2, "minOffset": 0}
        assert await body(served, GetLiteTopicInfo("T", "s").to_command()) == {**named, "topicOffset": stored}
        unknown = {"clientId": "c", "group": "g", "lastAccessTime": -1, "lastConsumeTime": 0, "liteTopicCount": -1}
        assert await body(served, GetLiteClientInfo("T", "g", "c").to_command()) == {**unknown, "parentTopic": "T"}
        dispatched = await served.ask(TriggerLiteDispatch("g").to_command())
        assert (dispatched.code, dispatched.body) == (0, b"")


async def test_the_lag_of_a_group_is_that_of_rocketmq(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        creation = UpdateTopic("T", 4, 4, 6, attributes="+message.type=LITE")
        assert (await served.ask(creation.to_command())).code == 0
        tables, reader = served.running.broker.tables, served.running.broker.store.reader
        tables.groups.put({"groupName": "g", "attributes": {"lite.bind.topic": "T"}}, 0)
        group: dict[str, object] = {"group": "g", "parentTopic": "T", "earliestUnconsumedTimestamp": -1}
        none = {**group, "lagCountTopK": [], "lagTimestampTopK": [], "totalLagCount": 0}
        assert await body(served, GetLiteGroupInfo("g", None, 5).to_command()) == none
        absent = {**group, "liteTopic": "s", "totalLagCount": -1}
        assert await body(served, GetLiteGroupInfo("g", "s", 5).to_command()) == absent
        for name in "sssttu":
            await served.send("T", properties=f"__LITE_TOPIC\x01{name}\x02")
        assert await body(served, GetLiteGroupInfo("g", "s", 5).to_command()) == {**absent, "totalLagCount": 0}
        assert await body(served, GetLiteGroupInfo("g", None, 5).to_command()) == none
        for name, offset in (("s", 1), ("t", 0), ("u", 1)):
            tables.offsets.commit("g", f"%LMQ%$T${name}", 0, offset)
        tables.offsets.commit("g", "T", 0, 0)
        s_times = [reader.store_time(("%LMQ%$T$s", 0), offset) for offset in (0, 1)]
        lags = [
            {"earliestUnconsumedTimestamp": reader.store_time(("%LMQ%$T$t", 0), 0), "lagCount": 2, "liteTopic": "t"},
            {"earliestUnconsumedTimestamp": s_times[1], "lagCount": 2, "liteTopic": "s"},
        ]
        shown = await body(served, GetLiteGroupInfo("g", None, 5).to_command())
        assert shown == {**none, "lagCountTopK": lags, "totalLagCount": 4}
        assert await body(served, GetLiteGroupInfo("g", None, 1).to_command()) == {
            **none,
            "lagCountTopK": lags[:1],
            "totalLagCount": 4,
        }
        wrapper = {"brokerOffset": 3, "consumerOffset": 1, "lastTimestamp": s_times[0], "pullOffset": 0}
        assert await body(served, GetLiteGroupInfo("g", "s", 5).to_command()) == {
            **group,
            "liteTopic": "s",
            "earliestUnconsumedTimestamp": s_times[1],
            "liteTopicOffsetWrapper": wrapper,
            "totalLagCount": 2,
        }


async def test_the_lags_of_many_lite_topics_are_found_in_turns(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        creation = UpdateTopic("T", 4, 4, 6, attributes="+message.type=LITE")
        assert (await served.ask(creation.to_command())).code == 0
        tables = served.running.broker.tables
        tables.groups.put({"groupName": "g", "attributes": {"lite.bind.topic": "T"}}, 0)
        for number in range(3 * STEPS_AT_ONCE):
            await served.send("T", properties=f"__LITE_TOPIC\x01s{number}\x02")
            tables.offsets.commit("g", f"%LMQ%$T$s{number}", 0, 0)
            tables.offsets.commit("g", f"plain{number}", 0, 0)
        seen = LiteGroupInfo.from_command(await served.ask(GetLiteGroupInfo("g", None, MOST_LAGS).to_command()))
        assert seen.lag == len(seen.by_lag or ()) == 3 * STEPS_AT_ONCE
        for top in (0, -1, MOST_LAGS + 1):
            refused = await served.ask(GetLiteGroupInfo("g", None, top).to_command())
            assert (refused.code, refused.remark) == (1, f"topK is {top}; 1 to 10000 are possible")


async def test_refusals_are_those_of_rocketmq(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        assert (await served.ask(UpdateTopic("plain", 4, 4, 6).to_command())).code == 0
        creation = UpdateTopic("T", 4, 4, 6, attributes="+message.type=LITE")
        assert (await served.ask(creation.to_command())).code == 0
        for request, code, remark in (
            (GetParentTopicInfo("nope"), 17, "Topic [nope] not exist."),
            (GetParentTopicInfo("plain"), 29, "Topic [plain] type not match."),
            (GetLiteTopicInfo("plain", "s"), 29, "Topic [plain] type not match."),
            (GetLiteClientInfo("T", "other", "c"), 29, "Subscription [other]-[T] not match."),
            (GetLiteGroupInfo("other", None, 1), 29, "Group [other] is not a LITE group."),
            (TriggerLiteDispatch("other"), 29, "Group [other] is not a LITE group."),
        ):
            answer = await served.ask(request.to_command())
            assert (answer.code, answer.remark) == (code, remark)
    async with serving(tmp_path, autoCreateSubscriptionGroup="false", **ON) as served:
        answer = await served.ask(GetLiteGroupInfo("absent", None, 1).to_command())
        assert (answer.code, answer.remark) == (26, "Group [absent] not exist.")
