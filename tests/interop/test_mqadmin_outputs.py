"""mqadmin's commands, one by one, on our cluster and on RocketMQ's own with the same content: the same output.

Lines are compared in sorted order, without times, addresses, ids and versions; a case says what else differs by nature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import trio

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.java_programs import shared_machine
from tests.support.mqadmin_commands import COMMANDS
from tests.support.mqadmin_jobs import COMMAND_SECONDS, MQADMIN, Content, filled, new_names, normal, run


@dataclass(frozen=True, slots=True)
class Case:
    """A command; what its output shows, what of each line is no subject, and which lines are none."""

    command: str
    shows: str
    masked: str = ""
    left_out: str = ""
    only: str = "5.4.0 4.9.7"
    more: bool = False  # ours may show more


# Those of Java's threads and of its second way to the disk.
NOT_OURS = r"^scheduleMessageOffset_|Capacity: |PoolQueueCapacity|^commitLogDiskRatio_|^remainHowManyDataToCommit"

TOPICS = (
    Case("topicList", "{topic}", left_out=r"^(?!{topic}$)"),
    Case("topicList -c", "DefaultCluster {topic} {group}", left_out=r"^(?!DefaultCluster {topic} )"),
    Case("topicStatus -t {topic}", "broker-b 1 0 3 TIME"),
    Case("topicRoute -t {topic}", "writeQueueNums"),
    Case("topicClusterList -t {topic}", "DefaultCluster"),
    Case("allocateMQ -t {topic} -i 127.0.0.1", '"queueId":1', masked=r"\[.*\]"),  # in any order
    Case("updateTopic -b {a} -t {topic}_new -r 4 -w 4", "create topic to ADDRESS success"),
    Case("topicStatus -t {topic}_new", "broker-a 3 0 0"),
    Case("updateTopicPerm -b {a} -t {topic}_new -p 4", "from 6 to 4"),
    Case("deleteTopic -t {topic}_new -c DefaultCluster", "delete topic .* success"),
    Case("statsAll -t {topic}", "{topic} {group} 4", masked=r"(?<=4) .*"),
)
GROUPS = (
    Case("consumerProgress -g {group}", "Diff Total: 4"),
    Case("consumerProgress", "{group}", left_out=r"^(?!{group} )"),
    Case("consumerConnection -g {group}", "CODE: 206"),
    Case("getConsumerConfig -g {group}", "retryMaxTimes = 16"),
    Case("updateSubGroup -c DefaultCluster -g {group}_new -r 3", "create subscription group to ADDRESS success"),
    Case("getConsumerConfig -g {group}_new", "retryMaxTimes = 3"),
    Case("cloneGroupOffset -s {group} -d {group}_new -t {topic}", "clone group offset success"),
    Case("deleteSubGroup -c DefaultCluster -g {group}_new -r true", "delete subscription group .* success"),
    # A 4.9 broker resets only groups that are online; its tool then goes another way.
    Case("resetOffsetByTime -g {group} -t {topic} -s 0", "broker-b 1 0", only="5.4.0"),
    Case("skipAccumulatedMessage -g {group} -t {topic}", "broker-b 1 3", only="5.4.0"),
)
MESSAGES = (
    Case("queryCq -t {topic} -q 0 -i 0 -c 2 -b {a}", "tagsCode=3552215", masked=r"physic(Offset|Size)=\d+"),
    Case("queryCq -t {topic} -q 0 -i 0 -c 2 -b {a} -g {group}", "is not online", masked=r"physic(Offset|Size)=\d+"),
    Case("queryCq -t {topic} -q 99 -i 0 -c 2 -b {a}", "99@{topic} is not exist"),
    Case("queryMsgByOffset -t {topic} -b broker-a -i 0 -o 0", "Tags: +.?tag0", masked=r"Properties: .*"),
    Case("queryMsgById -i {offset_id} -t {topic}", "Tags: .*tag0", masked=r"Properties: .*", only="5.4.0"),
    Case("queryMsgById -i {offset_id}", "Tags: .*tag0", masked=r"Properties: .*", only="4.9.7"),
    Case("printMsg -t {topic}", "maxOffset=3", masked=r"(storeSize|commitLogOffset)=\d+|properties=.*"),
    Case("consumeMessage -t {topic}", "Consume ok", masked=r"(storeSize|commitLogOffset)=\d+|properties=.*"),
    Case("sendMessage -t {topic} -p hello -b broker-a -i 0", "broker-a 0 SEND_OK", masked=r"(?<=SEND_OK ).*"),
    Case("sendMsgStatus -b broker-a -c 2", "SEND_OK", masked=r"rt=\d+|msgId=\w+|queueOffset=\d+"),
    Case("checkMsgSendRT -t {topic} -a 2 -s 10", "broker-a 0 true", masked=r"\d+(\.\d+)?$"),
)
BROKERS = (
    Case("clusterList", "DefaultCluster broker-b 0 ADDRESS", masked=r"(?<=VERSION).*"),
    Case("clusterList -m", "DefaultCluster broker-b", masked=r"(?<=broker-[ab]) \d.*"),
    Case("brokerStatus -b {a}", "putTps", masked=r" *:.*", left_out=NOT_OURS, more=True),
    Case("producer -b {a}", ""),
    Case("cleanExpiredCQ -b {a}", "success"),
    Case("cleanUnusedTopic -b {a}", "success"),
    Case("deleteExpiredCommitLog -b {a}", "success"),
    Case("updateBrokerConfig -b {a} -k fileReservedTime -v 48", "update broker config success"),
    Case("updateBrokerConfig -b {a} -k configBlackList -v x", "CODE: 16", only="5.4.0"),
    Case("wipeWritePerm -b broker-a", "OK", masked=r"\d+$"),
    Case("addWritePerm -b broker-a", "OK", masked=r"\d+$"),
    Case("brokerConsumeStats -b {a}", r"{topic} {group} broker-a 1 \d \d \d TIME", left_out=r"^(?!#|{topic} {group} )"),
    Case("haStatus -b {a}", "#SlaveNum\t0", masked=r"(?<=Offset\t)\d+", only="5.4.0"),
)
# A part of each, that a whole run of the tests has time for.
SOME = tuple(
    case
    for case in (*TOPICS, *GROUPS, *MESSAGES, *BROKERS)
    if case.command.partition(" ")[0] in ("topicStatus", "statsAll", "getConsumerConfig", "queryCq", "brokerStatus")
    and "_new" not in case.command
)
FAMILIES = {"topics": TOPICS, "groups": GROUPS, "messages": MESSAGES, "brokers": BROKERS}


@dataclass(frozen=True, slots=True)
class Pair:
    """Our cluster and RocketMQ's own, with the same content."""

    version: str
    ours: Content
    theirs: Content


@pytest.fixture(scope="module", params=NEWEST_AND_LONG_OLDER)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    apache: ApacheCluster = request.getfixturevalue(f"apache_{request.param[0]}")
    topic, group = new_names()
    with EmbeddedCluster(brokers=2) as cluster:
        ours = trio.run(filled, cluster.nameserver, topic, group)
        yield Pair(request.param, ours, trio.run(filled, apache.nameserver.address, topic, group))


@pytest.mark.parametrize("version", COMMANDS)
def test_the_names_of_its_commands(version: str) -> None:
    listed = re.findall(r"^ {3}(\w+) +\S", shared_machine(version).run(MQADMIN, timeout=COMMAND_SECONDS), re.MULTILINE)
    assert set(listed) == COMMANDS[version]


def test_mqadmin_prints_the_same_for_some_commands(pair: Pair) -> None:
    check(pair, SOME)


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_mqadmin_prints_the_same(pair: Pair, family: str) -> None:
    check(pair, FAMILIES[family])


def check(pair: Pair, cases: Sequence[Case]) -> None:
    """Runs every command before it fails, so that the error has all differences."""
    faults = [fault for case in cases if pair.version in case.only for fault in differences(pair, case)]
    assert not faults, "\n".join(faults)


def differences(pair: Pair, case: Case) -> Iterator[str]:
    """Yields the lines that only one cluster's output has, and an output that does not show its subject."""
    machine = shared_machine(pair.version)
    ours, theirs = (shown(run(machine, content, case.command), content, case) for content in (pair.ours, pair.theirs))
    wanted = re.compile(in_words(case.shows, pair.ours))
    for maker, lines in (("ours", ours), ("theirs", theirs)):
        if not any(wanted.search(line) for line in lines):
            yield f"{case.command}: {maker} does not show {wanted.pattern!r}: {lines[:20]}"
    ours, theirs = (masked(case, lines) for lines in (ours, theirs))
    yield from (f"{case.command}: only ours: {line[:300]}" for line in ours if line not in theirs and not case.more)
    yield from (f"{case.command}: only theirs: {line[:300]}" for line in theirs if line not in ours)


def shown(output: str, content: Content, case: Case) -> list[str]:
    left_out = re.compile(in_words(case.left_out, content)) if case.left_out else None
    return [line for line in normal(output) if left_out is None or not left_out.search(line)] or [""]


def masked(case: Case, lines: list[str]) -> list[str]:
    return sorted(re.sub(case.masked, "*", line) for line in lines) if case.masked else lines


def in_words(pattern: str, content: Content) -> str:
    return pattern.replace("{topic}", content.topic).replace("{group}", content.group)
