"""Administrators' requests for figures and settings: the wire, RocketMQ's own answers, and garbage."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, ProtocolError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.figures.broker_config import BrokerConfigText, GetBrokerConfig, UpdateBrokerConfig
from pyrmq_core.protocol.requests.figures.cleaning import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from pyrmq_core.protocol.requests.figures.ha_status import GetHaStatus, HaClient, HaConnection, HaStatus
from pyrmq_core.protocol.requests.figures.runtime_info import GetRuntimeInfo, RuntimeInfo
from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats, StatsPeriod, ViewBrokerStats
from pyrmq_core.protocol.requests.figures.topic_stats import (
    GetTopicStats,
    QueryTopicGroups,
    TopicGroups,
    TopicOffset,
    TopicStatsTable,
    queue_rows,
)
from tests.protocol.conversations import ANY_JSON, SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT, TEXT
from tests.protocol.test_real_conversations import command_of
from tests.support import golden

FLOATS = st.floats(0, 1e9)
TABLES = st.dictionaries(SOME_TEXT, TEXT, max_size=4)
PERIODS = st.builds(StatsPeriod, INT64, FLOATS, FLOATS)
CONNECTIONS = st.builds(HaConnection, TEXT, INT64, INT64, st.booleans(), INT64, INT64)
CLIENTS = st.builds(HaClient, TEXT, INT64, INT64, INT64, INT64, INT64)
QUEUES = st.builds(MessageQueue, SOME_TEXT, SOME_TEXT, INT32)
SAID = [
    st.builds(GetRuntimeInfo),
    st.builds(RuntimeInfo, TABLES),
    st.builds(ViewBrokerStats, SOME_TEXT, SOME_TEXT),
    st.builds(BrokerStats, PERIODS, PERIODS, PERIODS),
    st.builds(GetHaStatus),
    st.builds(
        HaStatus,
        st.booleans(),
        INT64,
        INT32,
        st.lists(CONNECTIONS, max_size=2).map(tuple),
        st.none() | CLIENTS,
    ),
    st.builds(GetBrokerConfig),
    st.builds(BrokerConfigText, TABLES),
    st.builds(UpdateBrokerConfig, TABLES),
    st.builds(CleanExpiredConsumeQueue),
    st.builds(CleanUnusedTopic),
    st.builds(DeleteExpiredCommitLog),
    st.builds(GetTopicStats, SOME_TEXT),
    st.builds(
        TopicStatsTable,
        st.dictionaries(QUEUES, st.builds(TopicOffset, INT64, INT64, INT64), max_size=3),
        st.none() | FLOATS,
    ),
    st.builds(QueryTopicGroups, SOME_TEXT),
    st.builds(TopicGroups, st.lists(SOME_TEXT, max_size=3).map(tuple)),
]
ANSWERS = (RuntimeInfo, BrokerStats, HaStatus, TopicStatsTable, TopicGroups)


@given(said=st.one_of(SAID), serialization=SERIALIZATIONS)
def test_it_survives_the_wire(said: Said, serialization: object) -> None:
    assert_survives(said, serialization)  # type: ignore[arg-type]  # one of the two


@given(said=st.one_of(SAID), data=st.data())
def test_garbage_is_read_or_named(said: Said, data: st.DataObject) -> None:
    assert_garbage_is_named(type(said), said, data)


@pytest.mark.parametrize("answer", ANSWERS)
@given(value=ANY_JSON, data=st.data())
def test_any_json_is_read_or_named(answer: type[Said], value: object, data: st.DataObject) -> None:
    names = ("table", "statsDay", "haConnectionInfo", "haClientRuntimeInfo", "offsetTable", "topicPutTps", "groupList")
    name = data.draw(st.sampled_from(names))
    with contextlib.suppress(ProtocolError):
        answer.from_command(success(body=dumps({name: value})))


def recorded(code: int) -> dict[str, Command]:
    commands = {frame.source.partition("_")[0]: command_of(frame) for frame in golden.answers(code) if frame.code == 0}
    assert set(commands) == {"4.9.7", "5.4.0"}
    return commands


def test_the_figures_of_apache_brokers() -> None:
    for version, answer in recorded(28).items():
        info = RuntimeInfo.from_command(answer)
        assert info.version == version
        assert info.boot_timestamp_ms is not None
        assert info.boot_timestamp_ms > 1_600_000_000_000
        assert info.messages_put_today is not None
        assert info.messages_put_today >= 0
        assert info.disk_ratio is not None
        assert 0 <= info.disk_ratio <= 1


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    info = RuntimeInfo({"putTps": "1.5 2.5 3.5", "getTransferedTps": "7.0 8.0 9.0"})
    assert (info.put_tps, info.get_tps) == (1.5, 7.0)
    assert RuntimeInfo({"getTransferredTps": "4.0  ", "getTransferedTps": "7.0"}).get_tps == 4.0


@pytest.mark.parametrize("text", ["", " ", "NaN", "inf", "many"])
def test_a_figure_that_is_none(text: str) -> None:
    names = ("putTps", "getTransferredTps", "commitLogDiskRatio", "bootTimestamp", "msgPutTotalTodayNow")
    info = RuntimeInfo(dict.fromkeys(names, text))
    assert info.put_tps is info.get_tps is info.disk_ratio is info.boot_timestamp_ms is info.messages_put_today is None
    assert RuntimeInfo({"commitLogDiskRatio": "-1.0"}).disk_ratio is None  # a broker that cannot read its disk
    assert RuntimeInfo({}).version is None


def test_the_topics_of_apache_brokers() -> None:
    for answer in recorded(202).values():
        table = TopicStatsTable.from_command(answer)
        assert table.offsets
        assert all(0 <= row.min_offset <= row.max_offset for row in table.offsets.values())


def test_rows_of_apache_brokers() -> None:
    for answer in recorded(202).values():
        offsets = TopicStatsTable.from_command(answer).offsets
        for topic, broker in {(queue.topic, queue.broker_name) for queue in offsets}:
            assert queue_rows(answer, topic, broker) == rows_in(offsets, topic, broker)


def rows_in(offsets: Mapping[MessageQueue, TopicOffset], topic: str, broker: str) -> dict[int, tuple[int, int, int]]:
    mine = {queue: row for queue, row in offsets.items() if (queue.topic, queue.broker_name) == (topic, broker)}
    return {
        queue.queue_id: (row.min_offset, row.max_offset, row.last_update_timestamp_ms) for queue, row in mine.items()
    }


NAMES = st.sampled_from(["T", "a", "%RETRY%g", 'q"u', "b\\", "é", ""])


@given(
    offsets=st.dictionaries(
        st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31 - 1)),
        st.builds(TopicOffset, *[st.integers(-1, 2**62)] * 3),
        max_size=5,
    ),
    rate=st.none() | st.floats(0, 1e9),
    topic=NAMES,
    broker=NAMES,
)
def test_rows_are_those_of_the_table(
    offsets: dict[MessageQueue, TopicOffset], rate: float | None, topic: str, broker: str
) -> None:
    answer = TopicStatsTable(offsets, rate).to_command()
    assert queue_rows(answer, topic, broker) == rows_in(offsets, topic, broker)


@given(cut=st.integers(0, 250), lost=st.integers(0, 5), put=st.binary(max_size=4) | st.sampled_from([b"0", b",", b"}"]))
def test_a_damaged_table_has_the_same_rows_or_none(cut: int, lost: int, put: bytes) -> None:
    offsets = {MessageQueue("T", "a", number): TopicOffset(number, 5, 6) for number in range(2)}
    body = bytes(TopicStatsTable(offsets, 0.0).to_command().body)
    answer = success(body=body[:cut] + put + body[cut + lost :])
    try:
        table = TopicStatsTable.from_command(answer).offsets
    except BodyError:
        with pytest.raises(BodyError):
            queue_rows(answer, "T", "a")
    else:
        assert queue_rows(answer, "T", "a") == rows_in(table, "T", "a")


def test_a_table_of_other_values_is_refused() -> None:
    with pytest.raises(BodyError, match="no table of texts"):
        RuntimeInfo.from_command(success(body=b'{"table":{"putTps":1}}'))
    with pytest.raises(BodyError, match="groups of a topic"):
        TopicGroups.from_command(success(body=b'{"groupList":[1]}'))
