"""`pyrmq search` as a process and at a terminal: what it prints, how it ends, and what it says of what it searched."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from pyrmq_core.testing import Command, CutConnection, Peer, RequestCode
from tests.support.commands import ended, started
from tests.support.terminal import Terminal

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers; in T ten orders and one text, in Slow bodies that a pattern takes minutes for."""
    with EmbeddedCluster(brokers=2, topics={"T": 1, "Slow": 1, "Empty": 1}) as cluster:
        with Producer("G", nameserver=cluster.nameserver) as producer:
            first, second = producer.message_queues("T")
            for number in range(10):
                text = json.dumps({"order": {"id": number, "big": 2**53 + number}})
                queue = first if number < 5 else second
                producer.send(Message("T", text.encode(), tags="a" if number % 2 else "b"), queue=queue)
            producer.send(Message("T", b"order 4 as a text"), queue=second)
            for _ in range(64):
                producer.send(Message("Slow", b"a" * 65536))
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


def test_a_text_a_pattern_and_a_condition(terminal: Terminal) -> None:
    where = terminal.run(
        "search", "T", "--since", "1h", "--where", f"json.order.big == {2**53 + 1} or json.order.id > 8", "-o", "raw"
    )
    assert [json.loads(line)["order"]["id"] for line in where.stdout.splitlines()] == [9, 1]
    assert where.stderr == "1 bodies are no JSON and do not match\n"
    text = terminal.text("search", "T", "--since", "earliest", "--contains", "order 4", "-o", "{brokerName} {body}")
    assert text == "broker-b order 4 as a text\n"
    rows = terminal.text("search", "T", "--since", "1d", "--regex", r'id": [0-3],', "--tags", "b", "--json")
    assert [json.loads(row)["queueOffset"] for row in rows.splitlines()] == [2, 0]
    assert terminal.text(
        "search",
        "T",
        "--since",
        "1h",
        "--contains",
        "order",
        "--queue",
        "broker-b",
        "--max",
        "2",
        "--oldest-first",
        "-o",
        "x{queueOffset}",
    ).splitlines() == ["x0", "x1"]


def test_nothing_found_says_what_was_searched(terminal: Terminal) -> None:
    result = terminal.run("search", "T", "--since", "1h", "--contains", "no such order")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "topic T: no message found; 11 of 11 messages (0.0 MiB) searched\n"
    empty = terminal.run("search", "Empty", "--since", "1h", "--contains", "x")
    assert "0 of 0 messages" in empty.stderr
    before = terminal.run("search", "T", "--since", "2d", "--until", "1d", "--contains", "order")
    assert "0 of 0 messages" in before.stderr


def test_a_bound_is_said(terminal: Terminal) -> None:
    wanted = ("search", "Slow", "--since", "1h", "--queue", "broker-a", "--contains", "a", "-o", "{queueOffset}")
    result = terminal.run(*wanted, "--max-bytes", "1B")
    offsets = [int(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert offsets == list(range(31, 31 - len(offsets), -1))
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"stopped at the bound of --max-bytes: {len(offsets)} messages found; ")
    assert f"not searched: broker-a/0 before {offsets[-1]}; --until " in said
    until = said.removesuffix(" goes on there").rpartition("--until ")[2]
    rest = terminal.run(*wanted, "--until", until)
    assert [int(line) for line in rest.stdout.splitlines()] == list(range(offsets[-1] - 1, -1, -1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "json.id = 4"), "--where: character 9, '=': "),
        (("--where", "os.system('x')"), "character 1, 'o': os is no name"),
        (("--regex", "("), "--regex: '(' is no regular expression of RE2: missing ): ("),
        (("--contains", ""), "--contains: the text to search for is empty"),
        ((), "give one of --contains, --where and --regex"),
        (("--contains", "a", "--regex", "a"), "give one of --contains, --where and --regex"),
        (("--contains", "a", "--sql", "a > 1", "--tags", "b"), "--tags and --sql exclude each other"),
        (("--contains", "a", "--since", "2999-01-01"), "--since: 2999-01-01 is in the future: no message is stored"),
        (("--where", 'json.id == "abc'), "character 12, '\"': the text that begins here has no end"),
        (("--contains", "a", "--until", "2h"), "--until is not after --since"),
        (("--contains", "a", "--max-bytes", "many"), "'many' is no size such as 500MiB"),
        (("--contains", "a", "--until", "yesterday"), "'yesterday' is not an age such as 15m, 1h or 2d, or an ISO"),
    ],
)
def test_wrong_options_are_named(options: tuple[str, ...], said: str) -> None:
    result = Terminal(NOBODY).run("search", "T", "--since", "1h", *options)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_an_interrupt_ends_a_pattern_that_takes_minutes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    pattern = ("--regex", "(.?){900}z", "-n", cluster.nameserver)
    process = started("search", "Slow", "--since", "1h", *pattern, home=tmp_path)
    ticks = Path(f"/proc/{process.pid}/stat")
    while int(ticks.read_text().rsplit(")", 1)[1].split()[11]) < 300:  # three seconds of its own: it is comparing
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    status, output, errors = ended(process)
    assert (status, output) == (130, "")
    (said,) = errors
    assert said.startswith("interrupted: 0 messages found; ")
    assert " of 64 messages (" in said
    assert "not searched: broker-" in said


def test_a_broker_that_goes_away_leaves_an_account(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    rule = cluster.control(RequestCode.PULL_MESSAGE, cut, server="broker-b")
    try:
        result = terminal.run("search", "T", "--since", "1h", "--contains", "order", "-o", "{body}", "--timeout", "1")
    finally:
        rule.remove()
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 5)
    (said,) = result.stderr.splitlines()
    assert cluster.brokers["broker-b"] in said
    assert "(5 messages found; 5 of 11 messages (0.0 MiB) searched, not searched: broker-b/0 before 6)" in said
