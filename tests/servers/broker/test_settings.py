"""A broker's settings: RocketMQ's are all known, none is ignored silently, and docs/settings.md has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network.tls_settings import NAMES as TLS_NAMES
from pyrmq_core.servers.access.settings import NAMES as ACCESS_NAMES
from pyrmq_core.servers.broker import BrokerConfig
from pyrmq_core.servers.broker.settings.broker_config import unknown_names, unused_names
from pyrmq_core.servers.broker.settings.setting_rules import KNOWN, REFUSED, WITHOUT_EFFECT
from pyrmq_core.servers.broker.settings.setting_values import ANY, RANGES
from tests.support.server_page import SETTINGS

NUMBERS = [
    (name, text) for name, text in BrokerConfig().to_properties().items() if text.isdecimal() and name != "deleteWhen"
]
# The intervals of tasks that would run without a pause.
ROUNDS = ("cleanResourceInterval", "timerFlushIntervalMs", "transactionCheckInterval")
ROCKETMQS = (Path(__file__).parents[2] / "golden" / "broker_settings_5.4.0.txt").read_text().split()


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
    for refusal in REFUSED:
        if refusal is row:
            for value in refusal.harmless:
                settings = dict.fromkeys(refusal.names, f" {value.upper()} ")
                assert BrokerConfig().with_settings(settings) == BrokerConfig()
                assert unused_names(settings) == sorted(refusal.names)


def test_delivery_by_another_broker_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match=r"enableRemoteEscape=true: .* delivers nothing by another broker"):
        BrokerConfig().with_settings({"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"})


def test_all_that_is_refused_is_reported_at_once() -> None:
    with pytest.raises(
        InvalidArgument, match=r"enableControllerMode=true: .*; duplicationEnable=true: this broker is a master"
    ):
        BrokerConfig().with_settings({"enableControllerMode": "true", "duplicationEnable": "true", "brokerName": "b"})


def test_a_name_that_there_is_nowhere_is_reported_with_the_nearest_one() -> None:
    reported = unknown_names(
        {"brokerNam": "x", "fileReservedTimes": "1", "qqqqqq": "1", "listenPort": "1", "aclEnable": ""}
    )
    assert reported == [
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
        ("inSyncReplicas", "65"),
        ("timerPrecisionMs", "300"),
        ("mappedFileSizeTimerLog", "100"),
        ("timerStopEnqueue", "true"),
        ("storePathCommitLog", "/a,/b"),
        ("messageDelayLevel", ""),
        ("messageDelayLevel", "-1s"),
        ("defaultTopicQueueNums", "0"),
        ("defaultTopicQueueNums", "65536"),
        ("serverChannelMaxIdleTimeSeconds", "0"),
        ("listenPort", "65536"),
        ("brokerPermission", "8"),
        ("mapperFileSizeBatchConsumeQueue", "45"),
        ("messageDelayLevel", "1s 24856d"),
        ("maxMessageSize", "1_000"),
        ("regionId", "a\x01b"),
        ("regionId", "a\x02b"),
        ("regionId", "\ud800"),
        ("regionId", "x" * 128),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        BrokerConfig().with_settings({name: value})


def test_a_slave_may_have_any_id_that_is_a_long() -> None:
    largest = {"brokerRole": "SLAVE", "brokerId": str(2**63 - 1)}
    assert BrokerConfig().with_settings(largest).broker_id == 2**63 - 1


@pytest.mark.parametrize(("name", "default"), [(name, int(default)) for name, default in NUMBERS])
def test_every_number_has_a_greatest_one_and_a_wait_between_rounds(name: str, default: int) -> None:
    most = RANGES.get(name, ANY).most
    assert default <= most <= 2**63 - 1
    for impossible in (most + 1, 10**400):
        with pytest.raises(InvalidArgument, match=name) as refused:
            BrokerConfig().with_settings({name: str(impossible)})
        assert len(str(refused.value)) < 200
    if name.startswith("flush") or name in ROUNDS:
        with pytest.raises(InvalidArgument, match=name):
            BrokerConfig().with_settings({name: "0"})


def test_every_honoured_setting_has_its_row_and_its_default() -> None:
    part = (
        SETTINGS.read_text("utf-8").partition("\n## Settings of a broker\n")[2].partition("A broker does not start")[0]
    )
    reported: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`.+?) \| (.+?) \|", part, re.MULTILINE):
        texts = ["" if text == "none" else text.strip("`") for text in defaults.split(", ")]
        named = re.findall(r"`(\w+)`", names)
        reported.update(zip(named, texts * len(named) if len(texts) == 1 else texts, strict=True))
    settings = BrokerConfig().to_properties()
    assert reported == {name: value for name, value in settings.items() if name not in TLS_NAMES | ACCESS_NAMES}
