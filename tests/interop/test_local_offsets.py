"""The file of a broadcasting consumer: Java reads ours, and we read what Java makes of it."""

from pathlib import Path

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.client.consumer.offsets.offset_file import OffsetFile
from tests.support.apache import VERSIONS
from tests.support.java_programs import run_java
from tests.support.maven import ApacheUnavailable

PROGRAM = Path(__file__).parent / "java" / "LocalOffsets.java"
MOST = 2**31 - 1

CLIENT, GROUP = "10.0.0.1@DEFAULT#7", "MQ_INST%GID_broadcast"


def java(version: str, directory: Path, *queues: str) -> list[str]:
    """Runs Java's store in this directory; returns a line for each queue."""
    try:
        printed = run_java(version, PROGRAM, str(directory), CLIENT, GROUP, *queues)
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {version}: {reason}")
    return [line.removeprefix("offset ") for line in printed.splitlines() if line.startswith("offset ")]


@pytest.mark.parametrize("version", VERSIONS)
def test_java_reads_our_file_and_we_read_javas(version: str, tmp_path: Path) -> None:
    """4.9.7 keeps only the queues that it consumed. 5.4.0 keeps the others too, but no offset beyond 32 bits."""
    file = OffsetFile(tmp_path, CLIENT, GROUP)
    ours = {MessageQueue("orders", "broker-a", 0): 7, MessageQueue('odd "{}:\\ Töpic', "broker b", 2): MOST}
    file.merge(ours)
    named = ("orders,broker-a,0,8", 'odd "{}:\\ Töpic,broker b,2,9', "orders,broker-a,1,5")
    assert java(version, tmp_path, *named) == [
        "MessageQueue [topic=orders, brokerName=broker-a, queueId=0] 7",
        f'MessageQueue [topic=odd "{{}}:\\ Töpic, brokerName=broker b, queueId=2] {MOST}',
        "MessageQueue [topic=orders, brokerName=broker-a, queueId=1] -1",
    ]
    assert file.read() == {
        MessageQueue("orders", "broker-a", 0): 8,
        MessageQueue('odd "{}:\\ Töpic', "broker b", 2): 9,
        MessageQueue("orders", "broker-a", 1): 5,
    }
