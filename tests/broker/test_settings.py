"""A broker's settings: RocketMQ's are all known, none is ignored silently, and docs/servers.md has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyrmq_core.broker import BrokerConfig
from pyrmq_core.broker.setting_rules import KNOWN, REFUSED, WITHOUT_EFFECT
from pyrmq_core.broker.settings import unknown_names, unused_names
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network.tls_settings import NAMES as TLS_NAMES
from tests.support.server_page import PAGE, written

ROCKETMQS = (Path(__file__).parent.parent / "golden" / "broker_settings_5.4.0.txt").read_text().split()


def test_every_setting_of_rocketmqs_is_honoured_refused_or_known_to_harm_nothing() -> None:
    honoured = BrokerConfig().to_properties().keys() - TLS_NAMES
    assert not set(ROCKETMQS) - honoured - KNOWN
    assert not KNOWN & honoured
    assert set(ROCKETMQS) >= KNOWN
    assert len(KNOWN) == sum(len(row.names) for row in (*REFUSED, *WITHOUT_EFFECT))


@pytest.mark.parametrize("name", [name for row in REFUSED for name in row.names])
def test_what_would_be_missed_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name}=\S*2: .*(set it|remove the line)"):
        BrokerConfig().with_settings({name: "x2"})


@pytest.mark.parametrize("row", REFUSED)
def test_what_asks_for_nothing_is_taken(row: object) -> None:
    assert row in REFUSED
    for one in REFUSED:
        if one is row:
            for value in one.harmless:
                settings = dict.fromkeys(one.names, f" {value.upper()} ")
                assert BrokerConfig().with_settings(settings) == BrokerConfig()
                assert unused_names(settings) == sorted(one.names)


def test_all_that_is_refused_is_reported_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"aclEnable=true: .*; fileReservedTime=72: this broker keeps everything"):
        BrokerConfig().with_settings({"aclEnable": "true", "fileReservedTime": "72", "brokerName": "b"})


def test_a_name_that_there_is_nowhere_is_reported_with_the_nearest_one() -> None:
    told = unknown_names(
        {"brokerNam": "x", "fileReservedTimes": "1", "qqqqqq": "1", "listenPort": "1", "aclEnable": ""}
    )
    assert told == [
        "brokerNam (did you mean brokerName?)",
        "fileReservedTimes (did you mean fileReservedTime?)",
        "qqqqqq",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flushDiskType", "SYNC"),
        ("brokerRole", "SLAVE"),
        ("brokerId", "1"),
        ("inSyncReplicas", "2"),
        ("timerWheelEnable", "true"),
        ("storePathCommitLog", "/a,/b"),
        ("messageDelayLevel", ""),
        ("messageDelayLevel", "-1s"),
        ("defaultTopicQueueNums", "0"),
        ("defaultTopicQueueNums", "65536"),
        ("serverChannelMaxIdleTimeSeconds", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        BrokerConfig().with_settings({name: value})


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page), "run `python -m tests.support.server_page`"


def test_every_honoured_setting_has_its_row_and_its_default() -> None:
    part = PAGE.read_text("utf-8").partition("### Settings of a broker\n")[2].partition("A broker does not start")[0]
    told: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`.+?) \| (.+?) \|", part, re.MULTILINE):
        texts = ["" if text == "none" else text.strip("`") for text in defaults.split(", ")]
        named = re.findall(r"`(\w+)`", names)
        told.update(zip(named, texts * len(named) if len(texts) == 1 else texts, strict=True))
    settings = BrokerConfig().to_properties()
    assert told == {name: value for name, value in settings.items() if name not in TLS_NAMES}
