"""Settings: RocketMQ's names, the table, files by port, values that are none, changes that are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.requests.nameserver.namesrv_config import UpdateNamesrvConfig
from pyrmq_core.servers.nameserver import NameServerConfig, configure
from pyrmq_core.servers.nameserver.config import unknown_settings
from tests.servers.nameserver.desk import Desk


def test_the_defaults() -> None:
    config = NameServerConfig()
    assert (config.bind_address, config.listen_port) == ("127.0.0.1", 9876)
    assert config.scan_not_active_broker_interval_ms == 10_000
    settings = config.to_settings()
    assert settings["orderMessageEnable"] == "false"
    assert settings["serverWorkerThreads"] == "8"
    assert list(settings) == sorted(settings)
    assert NameServerConfig().with_settings(settings).to_settings() == settings


def test_files_are_kept_apart_by_port_and_not_at_all_for_a_port_that_changes() -> None:
    first, second = (NameServerConfig(listen_port=port) for port in (9876, 9877))
    assert first.kv_config_file != second.kv_config_file
    assert first.config_store_file != second.config_store_file
    assert str(first.kv_config_file).endswith("namesrv/kvConfig-9876.json")
    assert NameServerConfig(listen_port=0).kv_config_file is None
    assert NameServerConfig(listen_port=0, kv_config_path="/x/kv.json").kv_config_file == Path("/x/kv.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"listenPort": "x"},
        {"listenPort": "70000"},
        {"listenPort": "-1"},
        {"orderMessageEnable": "yes"},
        {"scanNotActiveBrokerInterval": "0"},
        {"serverChannelMaxIdleTimeSeconds": "-5"},
    ],
)
def test_a_value_that_is_none_is_named(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        NameServerConfig().with_settings(settings)


@pytest.mark.parametrize("name", ["clusterTest", "enableControllerInNamesrv"])
def test_what_is_not_built_is_refused_by_name(name: str) -> None:
    assert NameServerConfig().with_settings({name: "false"}) == NameServerConfig()
    with pytest.raises(InvalidArgument, match=f"{name}=true: .* not supported"):
        NameServerConfig().with_settings({name: "true"})


def test_an_unknown_name_is_reported_with_the_nearest_one() -> None:
    assert unknown_settings({"listenPorts": "1", "listenPort": "1", "zzz": "1"}) == {
        "listenPorts": "listenPort",
        "zzz": "",
    }
    wrong = dict.fromkeys(("listenPort", "orderMessageEnable", "zzz", "yyy"), "1")
    assert unknown_settings(wrong, 1) == {"zzz": ""}  # however many known ones stand before it


def test_a_file_and_the_command_line_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("# ours\nlistenPort=1234\norderMessageEnable = TRUE\nserverWorkerThreads=16\nlistenPorts=1\n")
    config = configure(file)
    assert (config.listen_port, config.order_message_enable) == (1234, True)
    assert config.to_settings()["serverWorkerThreads"] == "16"
    assert config.config_store_file == file
    assert "listenPorts is no setting; is listenPort meant?" in capsys.readouterr().err
    over = configure(file, port=4321, host="0.0.0.0")
    assert (over.listen_port, over.bind_address) == (4321, "0.0.0.0")


@pytest.mark.parametrize("content", [None, b"\xff", b"a=\\u12"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "namesrv.conf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidArgument):
        configure(file)


async def test_changed_settings_are_stored_whole_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("orderMessageEnable=false\n")
    desk = Desk(configStorePath=file)
    assert (await desk.ask(UpdateNamesrvConfig({"orderMessageEnable": "true"}).to_command())).code == 0
    assert configure(file).order_message_enable
    assert parse_java_properties(file.read_text()).keys() == NameServerConfig().to_settings().keys()
    assert file.with_name("namesrv.properties.bak").read_text() == "orderMessageEnable=false\n"


async def test_settings_that_cannot_be_stored_are_in_force_and_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    desk = Desk(configStorePath=tmp_path / "file" / "below.properties")
    answer = await desk.ask(UpdateNamesrvConfig({"orderMessageEnable": "true"}).to_command())
    assert answer.code == 1
    assert "in force and not written" in (answer.remark or "")
    assert desk.server.config.order_message_enable
