"""SQL92 subscriptions of heartbeats: what pulls get, their versions, their file, their bounds; settings of groups."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData, UnregisterClient
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.tables import consumer_filters
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters, bloom_bits, murmur3_long
from tests.servers.broker.serving import Served, serving, until
from tests.support import golden

SQL = {"enablePropertyFilter": "true"}
WRONG = "The broker's consumer filter data is not exist!Your expression may be wrong!"


def sql(expression: str, version: int = 1, topic: str = "T", kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type=kind)


async def beat(served: Served, *subscriptions: SubscriptionData, group: str = "g", model: str = "CLUSTERING") -> None:
    data = ConsumerData(group, "CONSUME_PASSIVELY", model, subscriptions=subscriptions)
    assert (await served.ask(HeartBeat("c1", (), (data,)).to_command())).code == ResponseCode.SUCCESS


async def pull(served: Served, version: int = 1, flags: int = 0, **fields: object) -> Command:
    """Pulls without an expression of its own: by what the group's heartbeat subscribed to."""
    header = {"sub_version": version, "expression_type": None, **fields}
    return await served.ask(PullMessage("g", "T", 0, 0, 32, flags, **header).to_command())  # type: ignore[arg-type]


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in iterate_records(PullAnswer.from_command(answer).records)]


async def with_messages(served: Served) -> None:
    for number in range(3):
        await served.send("T", b"%d" % number, f"a\x01{number}\x02")


async def test_a_pull_without_an_expression_gets_what_the_heartbeat_wants(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served:
        await with_messages(served)
        await beat(served, sql("a > 0"))
        assert bodies(await pull(served)) == [b"1", b"2"]
        await beat(served, sql("a = 7", 2))
        nothing = await pull(served, 2)
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert PullAnswer.from_command(nothing).next_begin_offset == 3


async def test_a_held_pull_evaluates_it_too(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served, trio.open_nursery() as nursery:
        await served.send("T", b"first", "a\x010\x02")
        await beat(served, sql("a > 0"))
        answers: list[Command] = []

        async def wait() -> None:
            request = PullMessage("g", "T", 0, 1, 32, 2, suspend_timeout_ms=60_000, sub_version=1, expression_type=None)
            answers.append(await served.ask(request.to_command()))

        nursery.start_soon(wait)
        await until(lambda: served.running.broker.clients.held.count == 1)
        await served.send("T", b"second", "a\x015\x02")
        await until(lambda: bool(answers))
        assert bodies(answers[0]) == [b"second"]


async def test_a_held_pull_waits_on_while_no_message_passes(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served, trio.open_nursery() as nursery:
        await served.send("T", b"first", "a\x010\x02")
        await beat(served, sql("a > 0"))
        answers: list[Command] = []

        async def wait() -> None:
            request = PullMessage("g", "T", 0, 1, 32, 2, suspend_timeout_ms=60_000, sub_version=1, expression_type=None)
            answers.append(await served.ask(request.to_command()))

        held = served.running.broker.clients.held
        nursery.start_soon(wait)
        await until(lambda: held.count == 1)
        for number in range(3):
            await served.send("T", b"other", "a\x010\x02")
            assert (await served.pull("T", offset=1 + number)).code == 0, "it is readable"
            await until(lambda: held.count == 1)
            assert not answers
        await served.send("T", b"second", "a\x015\x02")
        await until(lambda: bool(answers))
        assert bodies(answers[0]) == [b"second"]
        assert PullAnswer.from_command(answers[0]).next_begin_offset == 5


async def test_a_held_pull_ends_behind_what_did_not_pass(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served, trio.open_nursery() as nursery:
        await served.send("T", b"first", "a\x010\x02")
        await beat(served, sql("a > 0"))
        answers: list[Command] = []

        async def wait() -> None:
            request = PullMessage("g", "T", 0, 1, 32, 2, suspend_timeout_ms=3000, sub_version=1, expression_type=None)
            answers.append(await served.ask(request.to_command()))

        nursery.start_soon(wait)
        await until(lambda: served.running.broker.clients.held.count == 1)
        await served.send("T", b"other", "a\x010\x02")
        await until(lambda: bool(answers))
        assert answers[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert PullAnswer.from_command(answers[0]).next_begin_offset == 2


async def test_versions_decide_as_in_a_released_broker(tmp_path: Path) -> None:
    """The steps and codes are those of a 5.4.0 broker that was asked the same."""
    async with serving(tmp_path, **SQL) as served:
        await with_messages(served)
        await beat(served, sql("a > 0", 10))
        assert (await pull(served, 11)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert bodies(await pull(served, 9)) == [b"1", b"2"]
        await beat(served, sql("a > 1", 9))  # an older version changes nothing
        assert bodies(await pull(served, 9)) == [b"1", b"2"]
        await beat(served, sql("a > 1", 12))
        assert bodies(await pull(served, 12)) == [b"2"]
        await beat(served, sql("a >", 20))
        wrong = await pull(served, 20)
        assert (wrong.code, wrong.remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, WRONG)
        await beat(served, sql("a > 1", 21))
        assert bodies(await pull(served, 21)) == [b"2"]


async def test_an_expression_of_an_older_heartbeat_is_not_latest(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served:
        await with_messages(served)
        await beat(served, sql("a > 0", 10))
        filters = served.running.broker.tables.filters
        filter_data = filters.find("g", "T")
        assert filter_data is not None
        filter_data.client_version = 9
        answer = await pull(served, 10)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST
        assert answer.remark == "the consumer's consumer filter data not latest"


@pytest.mark.parametrize("wrong", [sql("a > "), sql(""), sql("a > 0", kind="FOO"), sql("a" * 70_000)])
async def test_a_wrong_expression_is_refused_at_the_pull(tmp_path: Path, wrong: SubscriptionData) -> None:
    async with serving(tmp_path, **SQL) as served:
        await with_messages(served)
        await beat(served, wrong)
        answer = await pull(served)
        assert (answer.code, answer.remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, WRONG)


async def test_without_property_filters_the_pull_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        await beat(served, sql("a > 0"))
        answer = await pull(served)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("The broker does not support consumer to filter message by SQL92")


async def test_expressions_survive_a_restart_and_the_group_that_left(tmp_path: Path) -> None:
    async with serving(tmp_path, **SQL) as served:
        await with_messages(served)
        await beat(served, sql("a > 0", 10), sql("b = 1", 3, "U"))
        await beat(served, sql("a > 0", 10))
        await served.ask(UnregisterClient("c1", consumer_group="g").to_command())
        filters = served.running.broker.tables.filters
        left = [filters.find("g", topic) for topic in ("T", "U")]
        assert [entry is not None and entry.is_dead for entry in left] == [True, True]
    async with serving(tmp_path, **SQL) as served:
        filters = served.running.broker.tables.filters
        filter_data = filters.find("g", "T")
        assert filter_data is not None
        assert filter_data.dead_ms >= filter_data.born_ms
        await beat(served, sql("a > 0", 10))
        filter_data = filters.find("g", "T")
        assert filter_data is not None
        assert filter_data.dead_ms == 0
        assert bodies(await pull(served, 10)) == [b"1", b"2"]


def test_the_file_is_as_a_released_broker_writes_it(tmp_path: Path) -> None:
    theirs = load_object(golden.text("consumer_filters_5.4.0.json").encode(), "theirs")
    tables = theirs["filterDataByTopic"]
    filters = ConsumerFilters(DiskFiles(tmp_path), kept_ms=1000)
    g1, g5, g5_u = (
        tables["T"]["groupFilterData"]["G1"],
        tables["T"]["groupFilterData"]["G5"],
        tables["U"]["groupFilterData"]["G5"],
    )
    filters.register("wrong", [sql("a >")], 0)
    wrong = filters.find("wrong", "T")
    assert wrong is not None
    assert wrong.passes() is None
    filters.register("G1", [sql("a >", 20)], 0)
    filters.register("G1", [sql("a > 1", 21)], g1["bornTime"])
    filters.register("G5", [sql("a > 0", 10)], g5["bornTime"])
    filters.register("G5", [sql("a > 0", 10), sql("b = 2", 11, "U")], g5_u["bornTime"])
    filters.register("G5", [sql("a > 0", 10)], g5_u["deadTime"])
    filters.group_left("G5", g5["deadTime"])
    text = filters.unsaved()
    assert text is not None
    assert load_object(text(), "ours") == theirs
    assert filters.unsaved() is None


def test_expressions_are_written_as_they_were(tmp_path: Path) -> None:
    filters = ConsumerFilters(DiskFiles(tmp_path), kept_ms=1000)
    filters.register("g", [sql("a > 0", 10)], 5)
    texts = [filters.unsaved()]
    filters.register("g", [sql("a > 0", 11)], 6)
    texts.append(filters.unsaved())
    filters.group_left("g", 7)
    texts.append(filters.unsaved())
    written = []
    for make_text in texts:
        assert make_text is not None
        data = load_object(make_text(), "filters")["filterDataByTopic"]["T"]["groupFilterData"]["g"]
        written.append((data["clientVersion"], data["dead"], data["deadTime"]))
    assert written == [(10, False, 0), (11, False, 0), (11, True, 7)]


def test_the_file_of_a_released_broker_is_read(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    files.save("config/consumerFilter.json", golden.text("consumer_filters_5.4.0.json").encode())
    filters = ConsumerFilters(files, kept_ms=1000)
    filters.load(2_000_000_000_000)
    filter_data = filters.find("G1", "T")
    assert filter_data is not None
    assert (filter_data.expression, filter_data.client_version, filter_data.dead_ms) == ("a > 1", 21, 2_000_000_000_000)
    assert len(filters) == 3
    filters.clean(2_000_000_000_999)
    assert len(filters) == 1
    filters.clean(2_000_000_001_000)
    assert len(filters) == 0
    assert not filters._topics.items()
    assert not filters._topics_of
    assert not filters._dead


@pytest.mark.parametrize("tables", [5, {"T": {"groupFilterData": {"g": 1}}}])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, tables: object) -> None:
    files = DiskFiles(tmp_path)
    files.save("config/consumerFilter.json", dumps({"filterDataByTopic": tables}))
    with pytest.raises(StoreError, match=r"consumerFilter\.json"):
        ConsumerFilters(files, kept_ms=0).load(0)


def test_groups_that_left_make_place_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filters, "MOST_FILTERS", 2)
    monkeypatch.setattr(consumer_filters, "MOST_CHARS", 20)
    filters = ConsumerFilters(DiskFiles(tmp_path), kept_ms=10**9)
    filters.register("g1", [sql("a > 1")], 1)
    filters.register("g2", [sql("a > 1")], 2)
    filters.register("g3", [sql("a > 1")], 3)
    assert filters.find("g3", "T") is None
    filters.group_left("g1", 4)
    filters.register("g3", [sql("a > 1")], 5)
    assert filters.find("g3", "T") is not None
    assert filters.find("g1", "T") is None
    filters.group_left("g2", 6)
    filters.register("g4", [sql("a > 1234567890123")], 7)
    assert filters.find("g4", "T") is None
    assert len(filters) == 1


def test_a_group_that_comes_back_keeps_its_expression(tmp_path: Path) -> None:
    filters = ConsumerFilters(DiskFiles(tmp_path), kept_ms=100)
    filters.register("g", [sql("a > 1")], 1)
    filters.group_left("g", 2)
    filters.register("g", [sql("a > 1")], 3)
    filters.clean(1000)
    filter_data = filters.find("g", "T")
    assert filter_data is not None
    assert filter_data.dead_ms == 0
    filters.group_left("g", 1000)
    filters.clean(1099)
    filter_data = filters.find("g", "T")
    assert filter_data is not None
    assert filter_data.dead_ms == 1000
    filters.clean(1100)
    assert filters.find("g", "T") is None


def test_a_full_table_costs_no_more_a_heartbeat(tmp_path: Path) -> None:
    """Neither alive nor dead expressions are searched for one more."""
    filters = ConsumerFilters(DiskFiles(tmp_path), kept_ms=10**9)
    for number in range(consumer_filters.MOST_FILTERS):
        filters.register(f"g{number}", [sql("a > 1")], 1)
    started = time.process_time()
    for number in range(20_000):
        filters.register(f"h{number}", [sql("a > 1")], 2)
        if number % 2:
            filters.group_left(f"g{number}", 3)
    assert time.process_time() - started < 3
    assert len(filters) == consumer_filters.MOST_FILTERS
    assert filters.find("h19998", "T") is not None
    assert filters.find("g19997", "T") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", 0), (b"hello", 0xCBD8A7B341BD9B02), (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C)],
)
def test_hashes_are_murmur3s(text: bytes, expected: int) -> None:
    """The hashes of these texts are in the descriptions of Murmur3 x64 128 with seed 0."""
    assert murmur3_long(text) == expected


def test_bloom_bits_are_javas() -> None:
    """The released broker wrote these into its file."""
    tables = load_object(golden.text("consumer_filters_5.4.0.json").encode(), "theirs")["filterDataByTopic"]
    for topic, groups in tables.items():
        for group, data in groups["groupFilterData"].items():
            assert bloom_bits(f"{group}#{topic}") == data["bloomFilterData"]["bitPos"]


@pytest.mark.parametrize(
    ("settings", "group_settings", "model", "is_notified"),
    [
        ({}, {}, "CLUSTERING", True),
        ({}, {}, "BROADCASTING", False),
        ({}, {"notifyConsumerIdsChangedEnable": False}, "CLUSTERING", False),
        ({"notifyConsumerIdsChangedEnable": "false"}, {}, "CLUSTERING", False),
    ],
)
async def test_a_group_is_notified_only_if_it_wants_it(
    tmp_path: Path, settings: dict[str, str], group_settings: dict[str, object], model: str, is_notified: bool
) -> None:
    heard: list[str] = []

    def hear(request: Command, _: Peer) -> None:
        heard.append(request.ext["consumerGroup"])

    async with serving(tmp_path, **settings) as served:
        body = dumps({"groupName": "g", **group_settings})
        await served.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        member = served.another(hear)
        await beat(member, SubscriptionData("T"), model=model)
        await beat(member, SubscriptionData("T"), group="last")
        served.running.broker.clients.notices.changed(["last"])  # behind all others
        await until(lambda: "last" in heard)
        assert ("g" in heard) is is_notified


@pytest.mark.parametrize(
    ("group_settings", "model", "forbidden_type"),
    [
        ({"consumeEnable": False}, "CLUSTERING", "2"),
        ({"consumeBroadcastEnable": False}, "BROADCASTING", "4"),
        ({"consumeBroadcastEnable": False}, "CLUSTERING", None),
    ],
)
async def test_a_group_may_be_forbidden_to_consume(
    tmp_path: Path, group_settings: dict[str, object], model: str, forbidden_type: str | None
) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        body = dumps({"groupName": "g", **group_settings})
        await served.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        await beat(served, SubscriptionData("T", sub_version=1), model=model)
        answer = await pull(served)
        expected = ResponseCode.SUCCESS if forbidden_type is None else ResponseCode.NO_PERMISSION
        assert (answer.code, answer.ext.get("forbiddenType")) == (expected, forbidden_type)
