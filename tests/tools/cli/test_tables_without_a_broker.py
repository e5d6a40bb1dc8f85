"""Every table while one of two brokers is down: it is named, the rest is there, and the status is as documented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.testing import Command, CutConnection, Peer, RequestCode
from tests.servers.broker.serving import message
from tests.support.guarded import AUTH_5, KEY, SECRET, account_settings
from tests.support.table_commands import LATE, TABLES, WIDE, arguments, ask_all, connected, heart_beat
from tests.support.terminal import Terminal

# What NameServers know, and what only broker-a is asked for.
WITHOUT_BROKERS: Final = {
    *("topic list", "topic route", "topic perm", "topic order", "topic clusters", "cluster", "kv list"),
    "nameserver config",
}
OF_ONE_BROKER: Final = {"group seek", "broker config", "broker stats", "broker ha"}
# A change of all queues begins when all brokers have said where they are.
NOT_BEGUN: Final = {"group reset"}
# The part that the other broker knows.
THERE: Final = {
    **dict.fromkeys(("topic stats", "query", "dlq list", "broker list"), "broker-a"),
    **dict.fromkeys(("topic groups", "group list", "clients", "top"), "group-2"),
    **dict.fromkeys((words for words in TABLES if words.startswith("acl ")), "broker-a"),
    **dict.fromkeys(("topic settings", "group progress", "group describe"), "broker-a"),
    "dlq resend": "SEND_OK",
}


async def cut(_request: Command, _peer: Peer) -> Command:
    raise CutConnection


class Half:
    """A cluster whose broker-b does not answer."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.terminal = Terminal(cluster.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
        self.down = cluster.brokers["broker-b"]
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[Half]:
    topics = {WIDE: 2, "ordered": 1, f"%DLQ%{LATE}": 1}
    with EmbeddedCluster(2, topics=topics) as cluster, ExitStack() as stack:
        letter = message(f"%DLQ%{LATE}", b"dead", f"DLQ_ORIGIN_TOPIC\x01{WIDE}\x02UNIQ_KEY\x01U\x02").to_command()
        for address in cluster.brokers.values():
            peer = stack.enter_context(connected(address))
            ask_all(peer, (heart_beat("member", 3, (WIDE,)), letter, message(WIDE, b"x", "KEYS\x01K\x02").to_command()))
        terminal = Terminal(cluster.nameserver)
        terminal.text("group", "create", LATE)
        terminal.text("group", "reset", LATE, "-t", WIDE, "--to", "earliest")
        terminal.text("topic", "order", "ordered", "broker-a:1")
        yield Half(cluster)


@pytest.fixture(scope="module")
def with_users() -> Iterator[Half]:
    with EmbeddedCluster(2, settings=AUTH_5) as cluster:
        Terminal(cluster.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET).text(
            *("acl", "policy", "create", KEY, "--resource", "Topic:*", "--action", "Pub")
        )
        yield Half(cluster)


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Half]:
    with EmbeddedCluster(2, settings=account_settings(tmp_path_factory.mktemp("home"))) as cluster:
        yield Half(cluster)


@pytest.fixture
def half(words: str, request: pytest.FixtureRequest) -> Half:
    kinds = {"acl user": "with_users", "acl policy": "with_users", "acl account": "with_accounts"}
    cluster: Half = request.getfixturevalue(kinds.get(" ".join(words.split()[:2]), "open_cluster"))
    return cluster


@pytest.mark.parametrize("words", TABLES)
def test_a_broker_that_is_down(words: str, half: Half) -> None:
    called = [LATE if word == "group-0" else word for word in arguments(words)]  # which has no member to wait for
    result = half.terminal.run(*called)
    as_json = half.terminal.run(*called, "--json")
    assert as_json.exit_code == result.exit_code
    if words in NOT_BEGUN:
        (error,) = result.stderr.splitlines()
        assert half.down in error
        assert (result.exit_code, result.stdout) == (1, "")
    elif words in WITHOUT_BROKERS | OF_ONE_BROKER:
        assert (result.exit_code, result.stderr) == (0, "")
    else:
        assert result.exit_code == (1 if words.startswith("acl ") else 0)
        assert THERE[words] in result.stdout
        # A table with a column for each broker has no row for one.
        assert half.down in (result.stderr if words.startswith(("acl ", "topic settings")) else result.stdout)
        assert THERE[words] in as_json.stdout
        assert half.down in as_json.stdout + as_json.stderr
        assert json.loads(as_json.stdout)


@pytest.mark.parametrize("words", sorted(OF_ONE_BROKER))
def test_the_broker_that_is_down(words: str, half: Half) -> None:
    result = half.terminal.run(*("broker-b" if word == "broker-a" else word for word in arguments(words)))
    (error,) = result.stderr.splitlines()
    assert half.down in error
    assert (result.exit_code, result.stdout) == (1, "")
