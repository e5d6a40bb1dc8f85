"""UPDATE_BROKER_CONFIG (25): settings that change while the broker runs, and those that do not."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.servers.broker import registration
from pyrmq_core.servers.broker.processors.administration.broker_settings import CHANGEABLE, changed
from pyrmq_core.servers.broker.processors.table import handler_of
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.settings.setting_values import read_config_file
from tests.servers.broker.nameservers import nameservers
from tests.servers.broker.serving import Served, serving, until

REFUSED = ResponseCode.INVALID_PARAMETER


async def update(served: Served, text: str) -> Command:
    return await served.ask(Command(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode()))


async def shown(served: Served) -> dict[str, str]:
    answer = await served.ask(Command(RequestCode.GET_BROKER_CONFIG))
    return parse_java_properties(bytes(answer.body).decode())


def test_every_changeable_setting_exists() -> None:
    assert sorted(CHANGEABLE - set(BrokerConfig().to_properties())) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("listenPort", "1", "listenPort: read at the start only"),
        ("storePathRootDir", "/tmp", "storePathRootDir: read at the start only"),
        ("maxMessageSise", "1", "did you mean maxMessageSize"),
        ("maxMessageSize", "many", "whole number"),
        ("enableControllerMode", "true", "enableControllerMode"),
        ("traceOn", "perhaps", "true or false"),
        ("flushConsumerOffsetInterval", "0", "10 to 2147483647 are possible"),
        ("flushConsumerOffsetInterval", "9" * 400, "whole number"),
        ("shortPollingTimeMills", str(2**63), "0 to 2147483647 are possible"),
        ("maxStoreBytes", str(2**63), "are possible"),
        ("regionId", "a\x02UNIQ_KEY\x01b", "printable"),
    ],
)
def test_what_cannot_change_is_refused_by_name(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        changed(BrokerConfig(), {"regionId": "r", name: value})


def test_many_unknown_names_are_refused_without_a_search_for_each() -> None:
    with pytest.raises(InvalidArgument) as refused:
        changed(BrokerConfig(), {f"{'x' * 200}{number}": "1" for number in range(5000)})
    assert len(str(refused.value)) < 200


async def test_settings_are_in_force_at_once_and_all_or_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await served.send("T", b"x" * 2000)).code == ResponseCode.SUCCESS
        assert (await update(served, "maxMessageSize=1000\nlistenPort=7")).code == REFUSED
        assert (await served.send("T", b"x" * 2000)).code == ResponseCode.SUCCESS
        text = "maxMessageSize=1000\nautoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\nfileReservedTime=5"
        assert (await update(served, text + "\nsendMessageThreadPoolNums=9")).code == ResponseCode.SUCCESS
        assert (await served.send("T", b"x" * 2000)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await served.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
        broker = served.running.broker
        assert broker.tables.groups.find("new", 1) is None
        assert broker.services.retention._rules.reserved_ms == 5 * 3_600_000
        assert (await shown(served))["maxMessageSize"] == "1000"
        assert broker.settings.version.counter == 1
        for black in ("configBlackList", "brokerConfigPath", "rocketmqHome"):
            assert (await update(served, f"{black}=x")).code == ResponseCode.NO_PERMISSION
        assert (await served.ask(Command(RequestCode.UPDATE_BROKER_CONFIG, {}, b"\xff"))).code != ResponseCode.SUCCESS
        assert (await update(served, "regionId=" + "x" * 70_000)).code == REFUSED


async def test_the_file_has_what_changed_and_the_rest_of_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    before = "regionId=here\nmaxMessageSize=5000\n"
    file.write_text(before)
    async with serving(tmp_path / "store", brokerConfigPath=str(file)) as served:
        assert (await update(served, "maxMessageSize=1000\ntraceOn=false")).code == ResponseCode.SUCCESS
        settings = {"maxMessageSize": "1000", "regionId": "here", "traceOn": "false"}
        assert read_config_file(str(file)) == settings
        assert read_config_file(f"{file}.bak") == parse_java_properties(before)
        file.unlink()
        refused = await update(served, "traceOn=true")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "in force and not written" in (refused.remark or "")
        assert served.running.broker.settings.config.trace_on


async def test_another_permission_is_registered_at_once(tmp_path: Path) -> None:
    async with nameservers() as (server,), serving(tmp_path, namesrvAddr=server.address) as served:
        first = server.registrations()[0][1].body().data_version
        assert (await update(served, "brokerPermission=4")).code == ResponseCode.SUCCESS
        await until(lambda: len(server.registrations()) == 2)
        body = server.registrations()[1][1].body()
        assert body.data_version.counter > first.counter
        assert {topic.topic: topic.perm for topic in body.topic_configs}["BenchmarkTest"] == 4
        assert served.running.broker.tables.topics.get("BenchmarkTest") is not None
        assert (await served.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))).code == ResponseCode.SUCCESS


async def test_a_refused_number_ends_no_task_and_is_not_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushConsumerOffsetInterval=10\n")
    async with serving(tmp_path / "store", brokerConfigPath=str(file), flushConsumerOffsetInterval="10") as served:
        refused = await update(served, "flushConsumerOffsetInterval=" + "9" * 60_000)
        assert (refused.code, len(refused.remark or "") < 200) == (REFUSED, True)
        offsets = served.running.broker.tables.offsets
        offsets.commit("g", "T", 0, 1)
        await until(lambda: not offsets.is_changed)
    assert read_config_file(str(file)) == {"flushConsumerOffsetInterval": "10"}


async def test_the_bound_of_a_guarded_body_changes_with_its_setting(tmp_path: Path) -> None:
    async with serving(tmp_path, authenticationEnabled="true", authConfigPath=str(tmp_path)) as served:
        broker = served.running.broker
        peer = cast(Peer, SimpleNamespace(address="127.0.0.1:1"))
        handler_of(broker)(Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxHeartbeatBytes=2000"), peer)
        large = await served.ask(Command(RequestCode.HEART_BEAT, {}, bytes(2001)))
        assert large.remark == "the body has 2001 bytes, and 2000 are read for access control (maxHeartbeatBytes)"


async def test_topics_are_created_by_sends_after_that_is_switched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_REPEAT_SECONDS", 3600.0)  # the registration that is due anyway
    async with (
        nameservers() as (server,),
        serving(tmp_path, namesrvAddr=server.address, autoCreateTopicEnable="false") as served,
    ):
        assert "TBW102" not in server.topics()[0]
        assert (await served.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await update(served, "autoCreateTopicEnable=true")).code == ResponseCode.SUCCESS
        await until(lambda: any("TBW102" in topics for topics in server.topics()))
        assert (await served.send("New")).code == ResponseCode.SUCCESS
        assert served.running.broker.tables.topics.is_system("TBW102")
        file = served.running.broker.tables.topics.file
        await file.written()
        assert "TBW102" in file.load()["topicConfigTable"]


async def test_a_jvm_property_of_a_changed_ratio_goes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "rocketmq.broker.diskSpaceCleanForciblyRatio=0.80\nrocketmq.broker.diskSpaceWarningLevelRatio=0.85\n"
    )
    async with serving(tmp_path / "store", brokerConfigPath=str(file)) as served:
        assert (await update(served, "diskSpaceCleanForciblyRatio=70")).code == ResponseCode.SUCCESS
    next_start = BrokerConfig().with_settings(read_config_file(str(file)))
    assert (next_start.disk_space_clean_forcibly_ratio, next_start.disk_space_warning_level_ratio) == (70, 85)


async def test_the_file_keeps_its_permissions_and_the_link_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "settings" / "broker.conf", tmp_path / "broker.conf"
    file.parent.mkdir()
    file.write_text("traceOn=true\n")
    file.chmod(0o664)
    link.symlink_to(file)
    before = os.umask(0o077)
    try:
        async with serving(tmp_path / "store", brokerConfigPath=str(link)) as served:
            assert (await update(served, "traceOn=false")).code == ResponseCode.SUCCESS
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert read_config_file(str(file)) == {"traceOn": "false"}
    for path in (file, file.with_name("broker.conf.bak")):
        assert path.stat().st_mode & 0o777 == 0o664
