"""Names, addresses and times in the tables: those that brokers send are accepted, those that none sends are refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.protocol.requests.nameserver.kv_config import PutKvConfig
from pyrmq_core.protocol.requests.nameserver.namesrv_config import UpdateNamesrvConfig
from pyrmq_core.servers.nameserver.tables import accepted
from tests.servers.nameserver.desk import Desk, registration

STRANGE = ["", " ", "a\nb", "a\x00", "\x1b[2J", "../../x", "a\\b", "\ud800", "a\u2028b", "x" * 301]
HONEST_TOPICS = ["TopicTest", "%RETRY%" + "g" * 255, "%DLQ%g|x", "ip-10-0-0-1.ec2.internal", "集群_REPLY_TOPIC", "a$b"]
ADDRESSES = ["10.0.0.1:10911", "broker-0.svc.cluster.local:10911", "[::1]:10911", "fe80::1:10911", "h:0", "h:65535"]


@pytest.mark.parametrize("topic", HONEST_TOPICS)
def test_topics_that_brokers_register_pass(topic: str) -> None:
    accepted.check_topic("topic", topic)
    accepted.check_registered_topic(topic)
    accepted.check_name("brokerName", topic)


@pytest.mark.parametrize("name", STRANGE)
def test_names_that_no_broker_has_are_refused(name: str) -> None:
    for check in (accepted.check_name, accepted.check_topic, accepted.check_address):
        with pytest.raises(HeaderError, match="field is "):
            check("field", name)
    with pytest.raises(BodyError, match="topicName"):
        accepted.check_registered_topic(name)


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_of_brokers_pass(address: str) -> None:
    accepted.check_address("brokerAddr", address)


@pytest.mark.parametrize("address", ["h", "h:", ":1", "h:65536", "h:-1", "h:" + "9" * 5_000, "h:٣", "a b:1", "h:1\n"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(HeaderError, match="host:port"):
        accepted.check_address("brokerAddr", address)


@given(st.text(st.characters()))
def test_any_name_passes_or_is_refused_by_name_with_text_that_can_be_written(name: str) -> None:
    for check in (accepted.check_name, accepted.check_topic, accepted.check_address, accepted.check_key):
        try:
            check("field", name)
        except HeaderError as error:
            str(error).encode()
        else:
            name.encode()
            assert len(name.splitlines()) == 1


@pytest.mark.parametrize("field", ["clusterName", "brokerName", "brokerAddr", "haServerAddr", "__ZONE_NAME"])
async def test_a_registration_with_a_strange_field_is_refused_by_its_name(field: str) -> None:
    desk = Desk()
    command = registration(topics=["T", "U"]).to_command()
    answer = await desk.question(103, {**command.ext, field: "a\nb"}, bytes(command.body))
    assert answer.code == 1
    assert re.match(rf"HeaderError, .*\b{field}\b.*'a\\nb'", answer.remark or "")
    assert not desk.server.tables.cluster_addr_table


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (100, {"namespace": "a\nb", "key": "k", "value": "v"}),
        (100, {"namespace": "n", "key": "", "value": "v"}),
        (100, {"namespace": "n", "key": "k", "value": "\ud800"}),
        (104, {"clusterName": "c", "brokerAddr": "h:1", "brokerName": "../b", "brokerId": "0"}),
        (104, {"clusterName": "c", "brokerAddr": "h", "brokerName": "b", "brokerId": "0"}),
        (205, {"brokerName": "a\nb"}),
        (216, {"topic": "../../precious"}),
        (217, {"topic": "../../precious"}),
        (322, {"clusterName": "c", "brokerAddr": "h:70000"}),
        (327, {"brokerName": ""}),
        (904, {"clusterName": "c\r", "brokerAddr": "h:1"}),
    ],
)
async def test_every_request_that_carries_a_name_checks_it(code: int, ext: dict[str, str]) -> None:
    desk = Desk()
    answer = await desk.question(code, ext)
    assert answer.code == 1
    assert (answer.remark or "").startswith("HeaderError, ")
    assert desk.server.kv.namespaces == {}


async def test_a_time_out_of_centuries_is_refused() -> None:
    answer = await Desk().register(heartbeat_timeout_ms=2**62)
    assert answer.code == 1
    assert "heartbeatTimeoutMillis" in (answer.remark or "")


async def test_bodies_that_no_request_needs_are_refused_before_they_are_read() -> None:
    desk = Desk()
    for code in (216, 318, 322, 904):
        answer = await desk.question(code, {"topic": "T", "clusterName": "c", "brokerAddr": "h:1"}, bytes(65_537))
        assert (answer.code, answer.remark) == (1, "the body has 65537 bytes; 65536 at most for this request")


async def test_kv_configuration_is_bounded_as_a_whole() -> None:
    desk = Desk(kvConfigMaxBytes=1_000)
    for key in ("a", "b"):
        assert (await desk.ask(PutKvConfig("N", key, "x" * 400).to_command())).code == 0
    full = await desk.ask(PutKvConfig("N", "c", "x" * 400).to_command())
    assert full.code == 1
    assert "1000 at most (kvConfigMaxBytes)" in (full.remark or "")
    assert desk.server.kv.get("N", "c") is None
    assert (await desk.ask(PutKvConfig("N", "b", "y" * 300).to_command())).code == 0  # less than before
    assert (await desk.question(102, {"namespace": "N", "key": "a"})).code == 0
    assert (await desk.ask(PutKvConfig("N", "c", "x" * 400).to_command())).code == 0
    assert (await desk.ask(PutKvConfig("N" * 200, "c", None).to_command())).code == 1  # empty namespaces count too


@pytest.mark.parametrize("name", ["bindAddress", "listenPort", "kvConfigPath", "configStorePath", "kvConfigMaxBytes"])
async def test_paths_addresses_and_bounds_are_not_changed_over_the_network(name: str) -> None:
    desk = Desk(configBlackList="")
    answer = await desk.ask(UpdateNamesrvConfig({name: "1"}).to_command())
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")


async def test_a_setting_without_effect_is_no_place_to_keep_things() -> None:
    desk = Desk()
    for value in ("x" * 5_000, "a\x00b"):
        answer = await desk.ask(UpdateNamesrvConfig({"productEnvName": value}).to_command())
        assert answer.code == 1
        assert "productEnvName" in (answer.remark or "")
    assert desk.server.config.others == {}
