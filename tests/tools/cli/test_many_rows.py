"""Every table of a cluster with 10,000 queues and 1,000 of all else: its time and its requests have bounds."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import pytest

from pyrmq_core import Command, RequestCode
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import PASS
from pyrmq_core.network import Peer
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.requests.broker.users import CreateAcl, CreateUser
from pyrmq_core.protocol.requests.nameserver.kv_config import PutKvConfig
from pyrmq_core.servers.embedded.controls import Pass
from tests.servers.broker.serving import message
from tests.support import commands
from tests.support.guarded import AUTH_5, KEY, READER_SECRET, SECRET, account_settings
from tests.support.table_commands import LATE, NO_TABLE, TABLES, WIDE, arguments, ask_all, connected, heart_beat
from tests.support.terminal import Terminal

QUEUES: Final = 10_000
MANY: Final = 1_000
USERS: Final = 100  # a broker writes its file anew for each
PROCESSOR_SECONDS: Final = 6.0  # of this process, the servers' share too
FEW_REQUESTS: Final = 10
# A request for each group and broker, each pull of letters, each letter.
REQUESTS: Final = {
    **dict.fromkeys(("group list", "clients", "top"), 2 * (MANY + 20) + FEW_REQUESTS),
    "dlq list": 50,
    "dlq resend": MANY + 60,
}
# Brokers register, and send heartbeats, in the middle of any command.
OF_BROKERS: Final = {RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT}
ROWS: Final = {
    **dict.fromkeys(("topic list", "topic order", "topic groups", "group list", "group describe", "kv list"), MANY),
    **dict.fromkeys(("topic stats", "group progress", "group reset"), QUEUES),
    **dict.fromkeys(("dlq list", "dlq resend", "acl account list"), MANY),
    **dict.fromkeys(("acl user list", "acl policy list"), 2 * USERS),
    "clients": 2 * MANY,
    "query": 128,
    "top": 20,
}


@dataclass
class Many:
    """A cluster, its requests by code, and keys that may look at it."""

    cluster: EmbeddedCluster
    counted: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for code in set(RequestCode) - OF_BROKERS:
            self.cluster.control(code, self._count)

    async def _count(self, request: Command, peer: Peer) -> Pass:
        self.counted[request.code] += 1
        return PASS

    def terminal(self) -> Terminal:
        return Terminal(self.cluster.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[Many]:
    small = {f"topic-{number}": 1 for number in range(MANY)}
    topics = {WIDE: QUEUES // 2, f"%DLQ%{LATE}": 1, "ordered": 1, **small}
    with EmbeddedCluster(2, topics=topics) as cluster, ExitStack() as stack:
        letter = message(f"%DLQ%{LATE}", b"dead", f"DLQ_ORIGIN_TOPIC\x01{WIDE}\x02UNIQ_KEY\x01U\x02").to_command()
        for address in cluster.brokers.values():
            peer = stack.enter_context(connected(address))
            requests = (message(WIDE, b"x", "KEYS\x01K\x02", number).to_command() for number in range(MANY // 2))
            ask_all(peer, (heart_beat("member", MANY, small), *requests, *[letter] * (MANY // 2)))
        with connected(cluster.nameserver) as nameserver:
            ask_all(nameserver, (PutKvConfig(WIDE, f"key-{number}", "v").to_command() for number in range(MANY)))
        many = Many(cluster)
        many.terminal().text("topic", "order", "ordered", *(f"broker-{number}:1" for number in range(MANY)))
        many.terminal().text("group", "create", LATE)
        many.terminal().text("group", "reset", LATE, "-t", WIDE, "--to", "earliest")
        yield many


@pytest.fixture(scope="module")
def with_users() -> Iterator[Many]:
    with EmbeddedCluster(2, settings=AUTH_5) as cluster:
        for address in cluster.brokers.values():
            with connected(address) as peer:
                for requests in zip(*(user_requests(f"user-{number}") for number in range(USERS)), strict=True):
                    ask_all(peer, map(signed, requests))
        yield Many(cluster)


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    keys = "".join(f"- accessKey: account-{number}\n  secretKey: {READER_SECRET}\n" for number in range(MANY))
    with EmbeddedCluster(2, settings=account_settings(tmp_path_factory.mktemp("home"), keys)) as cluster:
        yield Many(cluster)


def signed(request: Command) -> Command:
    return Command(request.code, sign(request.ext, request.body, KEY, SECRET), request.body)


def user_requests(name: str) -> tuple[Command, Command]:
    user = {"username": name, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
    entries = [{"resource": "Topic:*", "actions": ["Sub"], "decision": "Allow"}]
    acl = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    return CreateUser(name, user).to_command(), CreateAcl(f"User:{name}", acl).to_command()


@pytest.fixture
def many(words: str, request: pytest.FixtureRequest) -> Many:
    kinds = {"acl user": "with_users", "acl policy": "with_users", "acl account": "with_accounts"}
    cluster: Many = request.getfixturevalue(kinds.get(" ".join(words.split()[:2]), "open_cluster"))
    return cluster


def test_every_command_is_one_or_the_other() -> None:
    asking = {words for words, command in commands.commands().items() if commands.asks_servers(command)}
    assert asking == TABLES.keys() | NO_TABLE
    assert not TABLES.keys() & NO_TABLE


@pytest.mark.parametrize("words", TABLES)
def test_a_table_of_many_rows(words: str, many: Many) -> None:
    many.counted.clear()
    began = time.process_time()
    result = many.terminal().run(*arguments(words))
    took, requests = time.process_time() - began, many.counted.total()
    assert result.exit_code == 0, result.output
    assert took < PROCESSOR_SECONDS
    assert requests <= REQUESTS.get(words, FEW_REQUESTS)
    assert len(result.stdout.splitlines()) > ROWS.get(words, 0)


def test_a_list_that_may_be_cut_says_so(open_cluster: Many) -> None:
    """A broker returns 64 messages of a key and no more; `dlq list` has a bound of its own."""
    terminal = open_cluster.terminal()
    cut = "these are the newest {} of a {}, there may be more: see --max, --from and --until"
    for words, number, of in (("query", 64, "broker"), ("dlq list", 10, "queue")):
        bound = ("--max", str(number)) if words == "dlq list" else ()
        assert terminal.text(*arguments(words), *bound).splitlines()[-1] == cut.format(number, of)
        as_json = terminal.run(*arguments(words), *bound, "--json")
        assert (len(json.loads(as_json.stdout)), as_json.stderr) == (2 * number, f"{cut.format(number, of)}\n")
    assert "may be more" not in terminal.text("dlq", "list", LATE, "--max", "100000")
