"""Each request code in memory, where the recorded answers leave a case open."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.requests.nameserver.kv_config import PutKvConfig
from pyrmq_core.protocol.requests.nameserver.namesrv_config import UpdateNamesrvConfig
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.access.user_requests import ABOUT
from pyrmq_core.servers.nameserver.handlers import HANDLERS, handle
from pyrmq_core.servers.protocol.register_broker import KnownDataVersion, QueryDataVersion, UnregisterBroker
from tests.servers.nameserver.desk import Desk, closed_because, json_body, peer, registration
from tests.servers.nameserver.table_steps import KEY_A

ALL_CODES = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}


def test_every_code_of_a_nameserver_is_served() -> None:
    assert set(HANDLERS) == ALL_CODES | {901, 904} | set(ABOUT)


async def test_codes_of_others_are_refused_by_name() -> None:
    answer = await Desk().question(RequestCode.PULL_MESSAGE)
    assert (answer.code, answer.remark) == (
        3,
        " request type 11 not supported: PULL_MESSAGE is no question for a NameServer",
    )
    assert (await Desk().question(999)).remark == " request type 999 not supported"


@pytest.mark.parametrize("code", sorted(set(HANDLERS)))
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]", b'{"a":{"b":[null,1e999]}}'])
async def test_no_question_without_fields_or_with_a_strange_body_breaks_anything(code: int, body: bytes) -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    before = dict(desk.server.tables.topic_queue_table)
    answer = await desk.question(code, {}, body)
    assert answer.code in (0, 1, 17, 22)
    assert desk.server.tables.topic_queue_table == before


async def test_a_missing_field_is_named_in_the_refusal() -> None:
    answer = await Desk().question(103, {"brokerName": "b"})
    assert (answer.code, answer.remark) == (1, "HeaderError, REGISTER_BROKER (103): field clusterName is missing")


async def test_a_registration_whose_sum_lies_changes_nothing() -> None:
    desk = Desk()
    command = registration().to_command()
    answer = await desk.ask(Command(103, {**command.ext, "bodyCrc32": "7"}, command.body))
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert not desk.server.tables.broker_addr_table


async def test_order_configuration_goes_to_brokers_and_only_if_asked_for_into_routes() -> None:
    desk = Desk()
    assert (await desk.register(topics=["T", "U"])).body == b""
    await desk.ask(PutKvConfig("ORDER_TOPIC_CONFIG", "T", "broker-a:4").to_command())
    assert json_body(await desk.register(topics=["T", "U"])) == {"table": {"T": "broker-a:4"}}
    await desk.ask(UpdateNamesrvConfig({"returnOrderTopicConfigToBroker": "false"}).to_command())
    assert (await desk.register(topics=["T", "U"])).body == b""
    route = await desk.route("T")
    assert route is not None
    assert route.order_topic_conf is None
    await desk.ask(UpdateNamesrvConfig({"orderMessageEnable": "true"}).to_command())
    for value in ("broker-a:4", "broker-a:8"):
        await desk.ask(PutKvConfig("ORDER_TOPIC_CONFIG", "T", value).to_command())
        route = await desk.route("T")
        assert route is not None
        assert route.order_topic_conf == value
    route = await desk.route("U")
    assert route is not None
    assert route.order_topic_conf is None


@pytest.mark.parametrize(
    ("version", "flag", "bare"),
    [
        (0, None, True),
        (400, None, True),
        (401, None, False),
        (479, None, False),
        (0, "true", False),
        (0, "false", True),
    ],
)
async def test_broker_ids_are_bare_only_for_peers_that_know_no_better(
    version: int, flag: str | None, bare: bool
) -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    ext = {"topic": "T"} if flag is None else {"topic": "T", "acceptStandardJsonOnly": flag}
    answer = await desk.question(105, ext, version=version)
    assert (b'{0:"127.0.0.1:10911"}' in answer.body) is bare
    assert (b'{"0":"127.0.0.1:10911"}' in answer.body) is not bare


async def test_repeated_questions_share_one_encoded_answer_until_the_route_changes() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    first = (await desk.question(105, {"topic": "T"})).body
    assert (await desk.question(105, {"topic": "T"})).body is first
    await desk.register(topics=[TopicConfig("T", 8, 8)], version=2)
    second = (await desk.question(105, {"topic": "T"})).body
    assert second != first
    await desk.register("broker-b", "127.0.0.1:2", topics=["T", "U"])
    assert (await desk.question(105, {"topic": "T"})).body != second


async def test_a_zone_is_asked_for_by_name_and_mode() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"], zone_name="East")
    ext = {"topic": "T", "__ZONE_NAME": "west"}
    assert len(json_body(await desk.question(105, ext))["brokerDatas"]) == 1
    assert json_body(await desk.question(105, {**ext, "__ZONE_MODE": "true"}))["brokerDatas"] == []
    assert (
        len(json_body(await desk.question(105, {**ext, "__ZONE_MODE": "true", "__ZONE_NAME": " "}))["brokerDatas"]) == 1
    )


async def test_routes_wait_for_the_service_when_the_settings_say_so(mock_clock: MockClock) -> None:
    desk = Desk(needWaitForService=True, waitSecondsForService=45)
    refused = await desk.question(105, {"topic": "T"})
    assert (refused.code, refused.remark) == (1, "name server not ready")
    mock_clock.jump(45)
    assert (await desk.question(105, {"topic": "T"})).code == 17
    await desk.register(topics=["T", "U"])
    assert (await desk.question(105, {"topic": "T"})).code == 0


async def test_lists_can_be_switched_off() -> None:
    desk = Desk(enableAllTopicList=False, enableTopicList=False)
    for code in (206, 224, 311, 312, 313):
        answer = await desk.question(code, {"cluster": "DefaultCluster"})
        assert (answer.code, answer.remark) == (1, "disable")
    assert (await desk.question(304)).code == 0


async def test_both_light_signs_of_life_put_the_end_off(mock_clock: MockClock) -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    mock_clock.jump(100)
    answer = await desk.ask(
        QueryDataVersion("DefaultCluster", "127.0.0.1:10911", DataVersion(1_700_000_000_000, 1)).to_command()
    )
    assert KnownDataVersion.from_command(answer) == KnownDataVersion(False, DataVersion(1_700_000_000_000, 1))
    mock_clock.jump(100)
    await desk.question(904, {"clusterName": "DefaultCluster", "brokerAddr": "127.0.0.1:10911"})
    mock_clock.jump(120)
    desk.server.scan()
    assert await desk.route("T") is not None
    mock_clock.jump(0.002)
    desk.server.scan()
    assert await desk.route("T") is None


async def test_a_silent_broker_is_removed_and_its_connection_closed(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    desk, broker = Desk(), peer("127.0.0.1:7")
    await desk.register(topics=["T", "U"], of=broker)
    caplog.clear()
    mock_clock.jump(120.002)
    desk.server.scan()
    assert closed_because(broker) == ["its broker was silent for too long"]
    assert [record.getMessage() for record in caplog.records] == [
        "removed broker broker-a, id 0, 127.0.0.1:10911, cluster DefaultCluster: it was silent for too long",
        "removed broker name broker-a: no address is left",
        "removed cluster DefaultCluster: no broker is left",
        "removed topic T: no broker has it any more",
        "removed topic U: no broker has it any more",
    ]


async def test_ten_thousand_topics_that_leave_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    await desk.register(topics=[f"topic-{number}" for number in range(10_000)])
    caplog.clear()
    await desk.ask(UnregisterBroker("DefaultCluster", "127.0.0.1:10911", "broker-a", 0).to_command())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3 + 20 + 1
    assert lines[-1] == "removed 10000 topics in all: no broker has them any more"


async def test_settings_change_while_it_runs_and_the_black_list_holds() -> None:
    desk = Desk(configBlackList="enableTopicList")
    for name in ("enableTopicList", "configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"):
        answer = await desk.ask(UpdateNamesrvConfig({name: "x"}).to_command())
        assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    answer = await desk.ask(UpdateNamesrvConfig({"scanNotActiveBrokerInterval": "x"}).to_command())
    assert answer.code == 1
    assert "scanNotActiveBrokerInterval" in (answer.remark or "")
    assert (
        await desk.ask(UpdateNamesrvConfig({"supportActingMaster": "true", "nobodyKnows": "1"}).to_command())
    ).code == 0
    assert desk.server.tables.rules.support_acting_master
    settings = parse_java_properties(bytes((await desk.question(319)).body).decode())
    assert settings["supportActingMaster"] == "true"
    assert list(settings) == sorted(settings)
    assert (await desk.question(318)).code == 0


async def test_long_registrations_are_taken_in_turn_and_the_last_word_counts() -> None:
    """A short one waits for the long one of the same broker, in either order of starting; others pass."""
    desk = Desk()
    many = [f"topic-{number}" for number in range(3_000)]
    few = [TopicConfig("topic-1", 8, 8), TopicConfig("new", 1, 1)]
    long, short = (
        handle(desk.server, registration(topics=topics, version=version).to_command(), desk.peer)
        for topics, version in ((many, 1), (few, 2))
    )
    other = handle(desk.server, registration("broker-b", "127.0.0.1:2", topics=few).to_command(), desk.peer)
    assert isinstance(other, Command)
    assert not isinstance(long, Command)
    assert not isinstance(short, Command)
    done: list[str] = []

    async def wait(word: str, answer: Awaitable[Command]) -> None:
        assert (await answer).code == 0
        done.append(word)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "short", short)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(wait, "long", long)
    assert done == ["long", "short"]
    assert desk.server.tables.topic_queue_table["topic-1"]["broker-a"].read_queue_nums == 8
    assert desk.server.tables.broker_live_table[KEY_A].data_version.counter == 2


async def test_a_registration_cancelled_in_line_gives_its_place_up() -> None:
    desk = Desk()
    command = registration(topics=[f"topic-{number}" for number in range(3_000)]).to_command()
    with trio.move_on_after(0):
        await desk.ask(command)
    assert not desk.server.tables.topic_queue_table
    assert (await desk.ask(command)).code == 0


async def test_an_unchanged_long_registration_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    requested = registration(topics=[f"topic-{number}" for number in range(1_000)])
    await desk.ask(requested.to_command())
    tables = desk.server.tables
    monkeypatch.setattr("pyrmq_core.servers.protocol.register_broker.decode_registration", None)
    assert (await desk.ask(requested.to_command())).code == 0
    stamped = bytes(requested.raw_body).replace(b'"timestamp":0}', b'"timestamp":99}', 1)
    again = type(requested)(requested.header, stamped)
    assert (await desk.ask(Command(103, {**again.to_command().ext, "bodyCrc32": "0"}, stamped))).code == 0
    assert len(tables.topic_queue_table) == 1_000


async def test_registrations_that_pile_up_are_refused() -> None:
    desk = Desk()
    command = registration(topics=[f"topic-{number}" for number in range(1_000)]).to_command()
    codes: list[int] = []

    async def register() -> None:
        codes.append((await desk.ask(command)).code)

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(register)
    assert sorted(codes) == [0, 0, 0, 0, 2, 2]
    assert (await desk.ask(command)).code == 0
