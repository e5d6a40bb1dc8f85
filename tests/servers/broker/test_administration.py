"""Requests of administrators' tools to a broker in this process: lists, consumption, queue entries and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.java.object_keys import load_object_keys
from pyrmq_core.protocol.messages.queue_tables import queue_table_from
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.group_admin import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    QueryConsumeQueue,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    UpdateGroupForbidden,
)
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.statistics.tallies import MINUTE
from tests.servers.broker.serving import Served, serving

SUCCESS = ResponseCode.SUCCESS


async def answered(served: Served, code: RequestCode, body: object = None, **fields: object) -> dict[str, Any]:
    """Returns the members of a successful answer's body."""
    answer = await raw(served, code, body, **fields)
    assert answer.code == SUCCESS, answer.remark
    return load_object(answer.body, code.name) if answer.body else {}


async def raw(served: Served, code: RequestCode, body: object = None, **fields: object) -> Command:
    encoded = b"" if body is None else json.dumps(body).encode()
    return await served.ask(Command(code, {name: str(value) for name, value in fields.items()}, body=encoded))


async def commit(served: Served, group: str, offset: int, topic: str = "T", queue_id: int = 0) -> None:
    assert (await served.ask(UpdateConsumerOffset(group, topic, queue_id, offset).to_command())).code == SUCCESS


async def join(served: Served, group: str, topic: str = "T", expression: str = "*") -> Served:
    """Returns a connection that is a member of the group and a producer."""
    other = served.another()
    data = ConsumerData(group, "CONSUME_PASSIVELY", subscriptions=(SubscriptionData(topic, expression),))
    assert (await other.ask(HeartBeat("c1", ("P",), (data,)).to_command())).code == SUCCESS
    return other


async def pull(served: Served, group: str, topic: str = "T", flags: int = 4) -> Command:
    return await served.ask(PullMessage(group, topic, 0, 0, 32, flags).to_command())


async def test_lists_of_topics_and_groups_are_made_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    topic = {"topicName": "T1", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    other = {**topic, "topicName": "T2", "attributes": {"+message.type": "NORMAL"}}
    list_code, groups_code = (
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    )
    async with serving(tmp_path) as served:
        for faulty in ({**topic, "topicName": "T 3"}, {**other, "topicName": "T3", "attributes": {"+no.such": "x"}}):
            assert (await raw(served, list_code, {"topicConfigList": [topic, faulty]})).code != SUCCESS
            assert "T1" not in served.running.broker.tables.topics
        for _ in range(2):  # the second time nothing changes
            await answered(served, list_code, {"topicConfigList": [topic, other]})
        config = TopicConfigFound.from_command(await served.ask(GetTopicConfig("T2").to_command())).config
        assert (config.read_queue_nums, config.attributes) == (3, {"message.type": "NORMAL"})
        assert served.running.broker.tables.topics.file.is_behind is False
        groups = [{"groupName": "g1", "retryMaxTimes": 3}, {"groupName": "g2"}]
        refused = await raw(
            served, groups_code, {"groupConfigList": [*groups, {"groupName": "g3", "retryMaxTimes": "x"}]}
        )
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "g1" not in served.running.broker.tables.groups
        await answered(served, groups_code, {"groupConfigList": groups})
        group_config = served.running.broker.tables.groups.known("g1")
        assert group_config is not None
        assert group_config["retryMaxTimes"] == 3
        too_many = {"groupConfigList": [{"groupName": f"g{number}"} for number in range(1001)]}
        assert (await raw(served, groups_code, too_many)).code == ResponseCode.INVALID_PARAMETER


async def test_system_topics_and_producers_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await join(served, "g")
        topics = (await answered(served, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
        assert {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} <= set(topics)
        (producer,) = (await answered(served, RequestCode.GET_ALL_PRODUCER_INFO))["data"]["P"]
        assert producer["clientId"] == "c1"
        assert producer["remoteIP"].startswith("/127.0.0.1:")
        assert abs(producer["lastUpdateTimestamp"] - clock.now_ms()) < 60_000


async def test_what_a_group_consumes_and_how_far(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for number in range(4):
            await served.send("T", b"%d" % number)
        await pull(served, "g")
        await pull(served, "h")
        await commit(served, "g", 3)
        await commit(served, "h", 1)
        assert (await answered(served, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g"))["topicList"] == ["T"]
        subscription = await answered(served, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="T")
        assert subscription == {"group": "g", "topic": "T"}
        await join(served, "g", expression="a || b")
        subscription = await answered(served, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="T")
        assert subscription["subscriptionData"]["subString"] == "a || b"

        store = served.running.broker.store
        times = [store.reader.store_time(("T", 0), offset) for offset in range(4)]
        spans = load_object((await served.ask(QueryConsumeTimeSpan("T", "g").to_command())).body, "spans")
        (first, second, *_) = spans["consumeTimeSpanSet"]
        assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
        shown = [first[name] for name in ("minTimeStamp", "consumeTimeStamp", "maxTimeStamp")]
        assert shown == [times[0], times[2], times[3]]
        assert 0 <= first["delayTime"] < 60_000
        assert (second["minTimeStamp"], second["maxTimeStamp"], second["delayTime"]) == (-1, -1, 0)

        async def corrected(compare: str, left_out: str = "") -> object:
            header = QueryCorrectionOffset("T", compare, left_out)
            return load_object((await served.ask(header.to_command())).body, "offsets")["correctionOffsets"]

        assert await corrected("none") == {"0": 1}
        assert await corrected("none", "h,x") == {"0": 3}
        assert await corrected("h", "h") == {"0": 2**63 - 1}, "the others are ahead of h"


async def test_offsets_are_copied_to_another_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for topic in ("T", "U"):
            await served.send(topic)
            await pull(served, "g", topic)
            await commit(served, "g", 1, topic)
        offsets = served.running.broker.tables.offsets
        await join(served, "g", "T")
        assert (await served.ask(CloneGroupOffset("g", "h").to_command())).code == SUCCESS
        assert offsets.topics_of("h") == ["T"], "the online group does not subscribe to U"
        assert (await served.ask(CloneGroupOffset("g", "h", "U", offline=True).to_command())).code == SUCCESS
        assert offsets.committed("h", "U", 0) == 1


async def test_offsets_are_not_copied_to_a_group_that_cannot_be_made(tmp_path: Path) -> None:
    async with serving(tmp_path, autoCreateSubscriptionGroup="false") as served:
        unknown = await served.ask(CloneGroupOffset("g", "h").to_command())
        assert (unknown.code, unknown.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h not exist!")
        assert served.running.broker.tables.offsets.topics_of("h") == []


async def test_a_groups_offsets_go_with_it_in_the_words_of_both_releases(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        for fields, kept in (({}, ["T"]), ({"cleanOffset": "true"}, []), ({"removeOffset": "true"}, [])):
            await pull(served, "g")
            await commit(served, "g", 1)
            await answered(served, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", **fields)
            assert served.running.broker.tables.offsets.topics_of("g") == kept
            assert "g" not in served.running.broker.tables.groups


async def test_the_offsets_of_all_groups(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for _ in range(4):
            await served.send("T")
        await pull(served, "g")
        await commit(served, "g", 1)
        answer = await served.ask(GetBrokerConsumeStats().to_command())
        members = load_object_keys(answer.body, "consume stats")
        assert (members["totalDiff"], members["totalInflightDiff"]) == (3, 3)
        assert members["brokerAddr"] == served.running.address
        (stats,) = next(row["g"] for row in members["consumeStatsList"] if "g" in row)
        row = queue_table_from(stats["offsetTable"])[MessageQueue("T", "broker-a", 0)]
        assert (row["brokerOffset"], row["consumerOffset"], row["pullOffset"]) == (4, 1, 4)
        ordered = load_object_keys((await served.ask(GetBrokerConsumeStats(is_order=True).to_command())).body, "stats")
        assert ordered["totalDiff"] == 0


async def test_a_group_that_is_forbidden_to_read_a_topic_pulls_nothing(tmp_path: Path) -> None:
    async def readable(served: Served, topic: str, change: bool | None = None) -> object:
        answer = await served.ask(UpdateGroupForbidden("g", topic, change).to_command())
        return load_object(answer.body, "forbidden")["readable"]

    async with serving(tmp_path) as served:
        await served.send("T")
        member = await join(served, "g")
        assert (await pull(member, "g", flags=0)).code == SUCCESS
        assert await readable(served, "T") is True
        assert await readable(served, "T", change=False) is False
        assert await readable(served, "U", change=False) is False
        refused = await pull(member, "g", flags=0)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "the consumer group[g] is forbidden for topic[T]"
        assert (await pull(member, "g")).code == SUCCESS, "as in RocketMQ, a pull with its own expression is not"
    async with serving(tmp_path) as served:
        member = await join(served, "g")
        assert (await pull(member, "g", flags=0)).code == ResponseCode.NO_PERMISSION, "a restart keeps it"
        assert await readable(served, "T", change=True) is True
        assert (await pull(member, "g", flags=0)).code == SUCCESS
        assert await readable(served, "U") is False, "the other topic stays forbidden"


async def test_the_entries_of_a_queue_are_shown_as_they_are_on_disk(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for _ in range(5):
            await served.send("T", properties="TAGS\x01a\x02")

        async def entries(index: int, count: int, group: str | None = None) -> Command:
            return await served.ask(QueryConsumeQueue("T", 0, index, count, group).to_command())

        shown = load_object((await entries(1, 3)).body, "entries")
        assert (shown["minQueueIndex"], shown["maxQueueIndex"]) == (0, 5)
        store = served.running.broker.store
        rows = [(entry["physicOffset"], entry["physicSize"], entry["tagsCode"]) for entry in shown["queueData"]]
        assert rows == [tuple(store.reader.entry(("T", 0), offset)) for offset in (1, 2, 3)]
        assert len(load_object((await entries(3, 100)).body, "entries")["queueData"]) == 2
        beyond = await entries(5, 1)
        assert (beyond.code, beyond.remark, len(beyond.body)) == (SUCCESS, "Index 5 of 0@T is not exist!", 0)
        assert load_object((await entries(0, 1, "g")).body, "entries")["filterData"] == "g@T is not online!"
        await join(served, "g", expression="a")
        shown = load_object((await entries(0, 1, "g")).body, "entries")
        assert (shown["filterData"], shown["subscriptionData"]["subString"]) == ("null", "a")
        unknown = await served.ask(QueryConsumeQueue("T", 77, 0, 1).to_command())
        assert (unknown.code, unknown.remark) == (ResponseCode.SYSTEM_ERROR, "77@T is not exist!")


async def test_figures_count_what_was_stored_and_pulled(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for _ in range(6):
            assert (await served.send("T", b"x" * 100)).code == SUCCESS
        assert len((await pull(served, "g")).body) > 600
        await served.send("T", b"x" * (8 << 20))  # too large: not stored
        table = (await answered(served, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert all(isinstance(value, str) for value in table.values())
        stored = served.running.broker.store.end
        assert (table["putMessageTimesTotal"], table["putMessageSizeTotal"]) == ("6", str(stored))
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("6", "6")
        assert table["getTransferedTps"] == table["getTransferredTps"]
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1
        assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, ")

        figures = served.running.broker.counts.figures
        unknown = await raw(served, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="U")
        assert (unknown.code, unknown.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <U> not exist")

        async def minute(name: str, key: str) -> dict[str, Any]:
            stats = await answered(served, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            assert set(stats) == {"statsMinute", "statsHour", "statsDay"}
            shown: dict[str, Any] = stats["statsMinute"]
            return shown

        take_sample(served)
        assert (await minute("TOPIC_PUT_NUMS", "T"))["sum"] == 6
        assert (await minute("GROUP_GET_NUMS", "T@g"))["avgpt"] == 6.0
        assert (await minute("BROKER_PUT_NUMS", "DefaultCluster"))["sum"] == 6
        assert figures.put_tps("T") == pytest.approx((await minute("TOPIC_PUT_NUMS", "T"))["tps"])


def take_sample(served: Served) -> None:
    """Takes the sample that is due within 10 s."""
    broker = served.running.broker
    list(broker.counts.figures.take_samples(MINUTE, clock.now_ms() + 10_000))
