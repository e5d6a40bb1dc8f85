"""The answers about groups and connections, as RocketMQ's brokers write them, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.framing.versions import version_name
from pyrmq_core.protocol.requests.groups.connections import AllProducers, ConsumerConnections, ProducerConnections
from pyrmq_core.protocol.requests.groups.consume_stats import (
    ConsumeStats,
    ConsumeStatsOfGroups,
    ConsumeTimeSpans,
    OffsetWrapper,
)
from pyrmq_core.protocol.requests.groups.subscription_groups import AllSubscriptionGroups, SubscriptionGroupConfig

GOLDEN = Path(__file__).parents[2] / "golden"
READERS: list[Callable[[Command], object]] = [
    AllProducers.from_command,
    AllSubscriptionGroups.from_command,
    ConsumerConnections.from_command,
    ConsumeStats.from_command,
    ConsumeStatsOfGroups.from_command,
    ConsumeTimeSpans.from_command,
    ProducerConnections.from_command,
    SubscriptionGroupConfig.from_command,
]
# Each of the readers refuses one of these at least, and none raises anything but a BodyError.
HOSTILE = [
    b"",
    b"[]",
    b"{",
    b"\xff",
    b'{"offsetTable":[1]}',
    b'{"offsetTable":{"x":1}}',
    b'{"offsetTable":{{"brokerName":"a","queueId":"b","topic":"t"}:{}}}',
    b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"brokerOffset":"many"}}}',
    b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}',
    b'{"consumeStatsList":[{"g":[5]}]}',
    b'{"consumeStatsList":5}',
    b'{"consumeTimeSpanSet":[{"messageQueue":5}]}',
    b'{"consumeTimeSpanSet":[{}]}',
    b'{"connectionSet":[{"clientId":5}]}',
    b'{"connectionSet":5}',
    b'{"connectionSet":["x"]}',
    b'{"subscriptionTable":{"t":5}}',
    b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":"x"}}}',
    b'{"subscriptionGroupTable":[5]}',
    b'{"groupName":5}',
    b'{"data":{"g":[{"version":"x"}]}}',
    b'{"data":{"g":5}}',
    b"[" * 100_000,
]


def recorded(version: str, code: int) -> Command:
    conversation: dict[str, Any] = json.loads((GOLDEN / f"real_{version}_mqadmin_broker.json").read_text())
    (frame,) = [candidate for candidate in conversation["frames"] if candidate.get("answers") == code]
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex(frame["hex"]))
    command = decoder.next_command()
    assert command is not None
    return command


def test_the_progress_that_4_9_7_answered() -> None:
    stats = ConsumeStats.from_command(recorded("4.9.7", 208))
    assert stats.offsets == {
        MessageQueue("CapTopic", "broker-a", 1): OffsetWrapper(3, 3, None, 1795262318402),
        MessageQueue("CapTopic", "broker-a", 0): OffsetWrapper(3, 3, None, 1795262317370),
        MessageQueue("%RETRY%CG_CAP", "broker-a", 0): OffsetWrapper(1, 0, None, 0),
    }


def test_the_progress_that_5_4_0_answered() -> None:
    stats = ConsumeStats.from_command(recorded("5.4.0", 208))
    assert stats.consume_tps == 0.0
    assert stats.offsets[MessageQueue("CapTopic", "broker-a", 1)] == OffsetWrapper(3, 3, 3, 1795262281974)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__self__.__name__)
def test_a_hostile_body_is_refused_by_name_or_read(read: Callable[[Command], object]) -> None:
    refused = []
    for body in HOSTILE:
        try:
            read(success(body=body))
        except BodyError:
            refused.append(body)
    assert len(refused) >= 5


def test_members_that_are_not_known_are_kept_in_a_groups_settings() -> None:
    members = {"groupName": "g", "retryMaxTimes": 3, "groupRetryPolicy": {"type": "CUSTOMIZED"}, "later": 1}
    config = SubscriptionGroupConfig.from_members(members)
    assert (config.group_name, config.retry_max_times) == ("g", 3)
    assert members.items() <= config.to_members().items()


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (211, "211"),
        (212, "4.0.0-SNAPSHOT"),
        (213, "4.0.0"),
        (407, "4.9.7"),
        (413, "5.0.0"),
        (479, "5.3.3"),
        (493, "5.4.0"),
    ],
)
def test_versions_have_the_names_of_javas_table(number: int, name: str) -> None:
    assert version_name(number) == name
