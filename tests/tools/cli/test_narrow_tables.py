"""Every table on terminals of 40 and 80 columns, and beside it as JSON: nothing is too long, and nothing is lost."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.tools.cli.commands import pyrmq
from tests.servers.broker.serving import message
from tests.support.guarded import AUTH_5, KEY, SECRET, account_settings
from tests.support.table_commands import LATE, TABLES, WIDE, arguments, ask_all, connected, heart_beat
from tests.support.terminal import Terminal

WIDTHS: Final = (40, 80)
WHOLE: Final = 100_000
STYLES: Final = re.compile("\x1b\\[[0-9;]*m")
# Words that no two runs share: times, ages, rates and other figures that move, and ids of new messages.
MOVING: Final = re.compile(
    r"\d+[smh]?,?|\d\d:\d\d:\d\d\)?,?|\d+\.\d+(/s)?,?|\d+%|\d{4}-\d\d-\d\d|[0-9A-F]{32}|[\d.]+\.?"
)
# Words for people, which programs read in another form.
FOR_PEOPLE: Final = {
    "topic perm": {"read,", "write"},
    "group list": {"pull", "clustering"},
    "broker list": {"master", "ok"},
    "query": {"x"},
}
# Several tables at once, whose JSON has its own tests.
SEVERAL: Final = {"group describe", "top"}


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[str]:
    topics = {WIDE: 2, "ordered": 1, f"%DLQ%{LATE}": 1, "a-topic-whose-name-is-longer-than-forty-columns-are": 1}
    with EmbeddedCluster(2, topics=topics) as cluster, ExitStack() as stack:
        letter = message(f"%DLQ%{LATE}", b"dead", f"DLQ_ORIGIN_TOPIC\x01{WIDE}\x02UNIQ_KEY\x01U\x02").to_command()
        body = message(
            WIDE, b"some words of a body that is longer than a line of a terminal", "KEYS\x01K\x02TAGS\x01T\x02"
        )
        for address in cluster.brokers.values():
            peer = stack.enter_context(connected(address))
            ask_all(peer, (heart_beat("member", 2, (WIDE, *topics)), letter, body.to_command()))
        terminal = Terminal(cluster.nameserver)
        terminal.text("group", "create", LATE)
        terminal.text("group", "reset", LATE, "-t", WIDE, "--to", "earliest")
        terminal.text("topic", "order", "ordered", "broker-a:1")
        terminal.text("kv", "put", WIDE, "key", "a value of several words, and " + "a" * 60)
        yield cluster.nameserver


@pytest.fixture(scope="module")
def with_users() -> Iterator[str]:
    with EmbeddedCluster(2, settings=AUTH_5) as cluster:
        Terminal(cluster.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET).text(
            *("acl", "policy", "create", KEY, "--resource", "Topic:*", "--action", "Pub", "--action", "Sub")
        )
        yield cluster.nameserver


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedCluster(2, settings=account_settings(tmp_path_factory.mktemp("home"))) as cluster:
        yield cluster.nameserver


@pytest.fixture
def nameserver(words: str, request: pytest.FixtureRequest) -> str:
    kinds = {"acl user": "with_users", "acl policy": "with_users", "acl account": "with_accounts"}
    address: str = request.getfixturevalue(kinds.get(" ".join(words.split()[:2]), "open_cluster"))
    return address


@functools.cache
def shown(nameserver: str, words: str, width: int) -> str:
    """Returns what the command prints on a terminal of this width, without styles."""
    environment = {"NAMESRV_ADDR": nameserver, "PYRMQ_ACCESS_KEY": KEY, "PYRMQ_SECRET_KEY": SECRET}
    environment |= {"TTY_COMPATIBLE": "1", "COLUMNS": str(width), "TERM": "xterm-256color"}
    result = CliRunner().invoke(pyrmq, arguments(words), env=environment, color=True)
    assert result.exit_code == 0, result.output
    return STYLES.sub("", result.stdout)


def words_of(text: str) -> list[str]:
    return [word for word in text.split() if not MOVING.fullmatch(word)]


def folded(word: str, lines: list[str]) -> int:
    """Counts the places where the word begins in a column, and goes on below in the same column."""

    def is_at(row: int, column: int) -> bool:
        rest = word
        for line in lines[row:]:
            piece = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(line[column:], rest, strict=False))
            )
            rest = rest[piece:]
            if not piece or not rest:
                break
        return not rest

    starts = ((row, column) for row, line in enumerate(lines) for column in range(len(line)))
    return sum(lines[row][column] == word[0] and is_at(row, column) for row, column in starts)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", TABLES)
def test_a_table_fits(words: str, width: int, nameserver: str) -> None:
    """Each word of the table that a wide terminal shows is there: in one piece, or over lines of its own cell."""
    narrow, whole = shown(nameserver, words, width), shown(nameserver, words, WHOLE)
    assert max(map(cell_len, narrow.splitlines())) <= width
    joined = "".join(narrow.split())
    wanted = words_of(whole)
    missing = [word for word in set(wanted) if joined.count(word) < wanted.count(word)]
    assert [word for word in missing if folded(word, narrow.splitlines()) < wanted.count(word)] == []


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_of(inner)
    else:
        yield str(value)


@pytest.mark.parametrize("words", sorted(TABLES.keys() - SEVERAL))
def test_json_has_all_of_it(words: str, nameserver: str) -> None:
    terminal = Terminal(nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
    _, *lines = terminal.text(*arguments(words)).splitlines()
    objects = json.loads(terminal.text(*arguments(words), "--json"))
    texts = " ".join(texts_of(objects))
    if words == "group progress":
        assert "messages wait" in lines.pop()
    assert len(objects) == len(lines)
    missing = {word for word in words_of("\n".join(lines)) if word.removesuffix("…") not in texts}
    assert missing - FOR_PEOPLE.get(words, set()) == set()
