"""Every command with keys that may only read, at all servers or at some: it works, or says what is not permitted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

from pyrmq_core import Command, RequestCode
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.requests.broker.users import CreateAcl, CreateUser
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvList
from tests.servers.broker.serving import message
from tests.support.apache import ask
from tests.support.guarded import AUTH_5, KEY, READER, READER_SECRET, SECRET, account_settings
from tests.support.reading_only import changes, error_of, every_command
from tests.support.terminal import Terminal

HALF: Final = "half-administrator"  # may change broker-a and nameserver-a, and read the others
COMMANDS: Final = sorted(every_command("T"))
# Accounts of 4.9 guard brokers alone, and there no resets (PlainAccessValidator.java).
OPEN_WITH_ACCOUNTS: Final = {
    *("group reset", "group seek", "kv put", "kv delete", "broker wipe-write-perm", "broker add-write-perm"),
    *("topic order NAME broker-a:1 broker-b:1", "topic order NAME --delete"),
    "nameserver config --set orderMessageEnable=true",
}
# Secrets are read by administrators alone.
CLOSED_WITH_ACCOUNTS: Final = {"acl account list"}
# The changes that may be at one broker alone; and those of both that leave everything as it was.
AT_ONE_BROKER: Final = {"broker config broker-a --set fileReservedTime=71", "group seek"} | {
    *("send", "import", "dlq resend"),
}
LEAVES_NOTHING: Final = {"broker clean", "broker add-write-perm", "group clone"}
# Changes that several servers take; those of accounts are refused by servers that keep users.
SHARED: Final = [words for words in COMMANDS if changes(words) and not words.startswith("acl account")]
OWN: Final = {words: f"name-{number}" for number, words in enumerate(SHARED)}
# Requests whose answers show what a change leaves behind.
STATE_OF_BROKERS: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_LIST_ACL,
)
# A broker commits offsets of its own group whenever it checks transactions: never during these tests.
NO_CHECKS: Final = {"transactionCheckInterval": str(24 * 3600 * 1000)}
# A broker that registers, as each does every 30 s, marks the topics which NameServers then return as ordered.
NO_ORDER: Final = {"returnOrderTopicConfigToBroker": "false"}


@dataclass(frozen=True)
class Guarded:
    """Two brokers and two NameServers that know the reader."""

    cluster: EmbeddedCluster

    def terminal(self, key: str, secret: str = READER_SECRET) -> Terminal:
        nameservers = ";".join(self.cluster.nameservers.values())
        return Terminal(nameservers, PYRMQ_ACCESS_KEY=key, PYRMQ_SECRET_KEY=secret)

    def ask(self, address: str, request: Command) -> Command:
        return ask(address, replace(request, ext=sign(request.ext, request.body, KEY, SECRET)))

    def states(self, name: str) -> dict[str, bytes]:
        """Returns what each server has, by its name or a NameServer's address."""
        states = {}
        for broker, address in self.cluster.brokers.items():
            states[broker] = b"".join(self.ask(address, Command(code)).body for code in STATE_OF_BROKERS)
        requests = (
            Command(RequestCode.GET_NAMESRV_CONFIG),
            GetKvList("ORDER_TOPIC_CONFIG").to_command(),
            GetKvList(name).to_command(),
            GetRouteInfo(name).to_command(),
        )
        for address in self.cluster.nameservers.values():
            states[address] = b"".join(self.ask(address, request).body for request in requests)
        return states

    def fill(self, name: str) -> None:
        """Puts a message at each broker, a dead letter, a group with its offsets at the ends, and a value."""
        letter = message(f"%DLQ%{name}", b"dead", f"DLQ_ORIGIN_TOPIC\x01{name}\x02")
        for address in self.cluster.brokers.values():
            for stored in (message(name, properties="KEYS\x01K\x02"), letter):
                assert self.ask(address, stored.to_command()).code == 0
        terminal = self.terminal(KEY, SECRET)
        for words in (
            ("group", "create", name),
            ("group", "reset", name, "-t", name, "--to", "latest"),
            ("kv", "put", name, name, "before"),
        ):
            terminal.text(*words)


def topics_of(names: Iterable[str]) -> dict[str, int]:
    return {topic: 1 for name in names for topic in (name, f"%DLQ%{name}")}


@pytest.fixture(scope="module")
def users() -> Iterator[Guarded]:
    names = ["T", *OWN.values()]
    topics = {**topics_of(names), "consumed": 1}
    at_brokers, at_nameservers = AUTH_5 | NO_CHECKS, AUTH_5 | NO_ORDER
    with EmbeddedCluster(
        2, nameservers=2, topics=topics, settings=at_brokers, nameserver_settings=at_nameservers
    ) as cluster:
        guarded = Guarded(cluster)
        for name, address in {**cluster.brokers, **cluster.nameservers}.items():
            for user, is_super in ((READER, False), (HALF, name.endswith("-a"))):
                assert all(
                    guarded.ask(address, request).code == 0 for request in user_requests(user, is_super=is_super)
                )
            for words in OWN:
                if words.startswith("acl ") and words != "acl user create":
                    create, grant = user_requests(OWN[words], is_super=False)
                    assert guarded.ask(address, create).code == 0
                    assert words == "acl policy create" or guarded.ask(address, grant).code == 0
        for name in names:
            guarded.fill(name)
        terminal = guarded.terminal(KEY, SECRET)
        terminal.text("topic", "order", OWN["topic order NAME --delete"], "broker-a:1")
        terminal.text("send", "consumed", "body")
        yield guarded


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = account_settings(tmp_path_factory.mktemp("home"))
    with EmbeddedCluster(2, topics={**topics_of(("T", "changed")), "consumed": 1}, settings=settings) as cluster:
        guarded = Guarded(cluster)
        for name in ("T", "changed"):
            guarded.fill(name)
        guarded.terminal(KEY, SECRET).text("send", "consumed", "body")
        yield guarded


def arguments(words: str, name: str) -> list[str]:
    """Returns a command's arguments; a consumer has a topic of its own, whose group begins at its first message."""
    return every_command("consumed" if words == "consume" else name)[words]


def user_requests(user: str, *, is_super: bool) -> tuple[Command, Command]:
    kind = "Super" if is_super else "Normal"
    entries = [
        {"resource": resource, "actions": ["Sub", "Get", "List"], "decision": "Allow"}
        for resource in ("Topic:*", "Group:*", "Cluster:*")
    ]
    fields = {"username": user, "password": READER_SECRET, "userType": kind, "userStatus": "enable"}
    acl = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": entries}]}
    return CreateUser(user, fields).to_command(), CreateAcl(f"User:{user}", acl).to_command()


def refused(error: str, guarded: Guarded, why: str) -> None:
    """Checks that the line names a server, the code with which it answered, and the reason."""
    addresses = (*guarded.cluster.brokers.values(), *guarded.cluster.nameservers.values())
    assert any(address in error for address in addresses), error
    assert re.search(r" answered [A-Z0-9_]+ \(\d+\).* with [A-Z_]+ \(\d+\): ", error), error
    assert re.search(why, error), error


@pytest.mark.parametrize("words", COMMANDS)
def test_a_user_that_may_only_read(words: str, users: Guarded) -> None:
    before = users.states("T")
    result = users.terminal(READER).run(*arguments(words, "T"))
    if words.startswith("acl account"):
        refused(error_of(result), users, "accounts of plain_acl.yml: RocketMQ before 5.3.3.* aclEnable is false")
    elif changes(words):
        refused(error_of(result), users, f"User:{READER} has no permission to access (Topic|Group|Cluster):")
    else:
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
    if changes(words):
        assert users.states("T") == before


@pytest.mark.parametrize("words", COMMANDS)
def test_an_account_that_may_only_read(words: str, accounts: Guarded) -> None:
    if words == "health":  # another of these commands closes brokers for writing, which is a fault
        for name in accounts.cluster.brokers:
            accounts.terminal(READER).text("broker", "add-write-perm", name)
    result = accounts.terminal(READER).run(*arguments(words, "changed" if changes(words) else "T"))
    if words.startswith(("acl user", "acl policy")):
        refused(error_of(result), accounts, "users: RocketMQ 5.3 and later.* authenticationEnabled is false")
    elif words in CLOSED_WITH_ACCOUNTS or (changes(words) and words not in OPEN_WITH_ACCOUNTS):
        refused(error_of(result), accounts, "AclException: (Need admin permission|No default permission) for ")
    else:
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("words", SHARED)
def test_a_change_that_some_servers_refuse(words: str, users: Guarded) -> None:
    """The line names the servers that took the change and those that did not, and they are in that state."""
    name, nameservers = OWN[words], users.cluster.nameservers
    before = users.states(name)
    result = users.terminal(HALF).run(*arguments(words, name))
    after = users.states(name)
    if words == "broker wipe-write-perm":
        users.terminal(KEY, SECRET).text("broker", "add-write-perm", "broker-a")
    altered = {server for server in before if before[server] != after[server]}
    assert "broker-b" not in altered
    if words in AT_ONE_BROKER:
        assert result.exit_code == 0, result.output
        return
    error = error_of(result)
    note = re.search(r"\(changed: (.*); not changed: (.*)\)$", error)
    assert note is not None, error
    assert note.groups() in (
        ("broker-a", "broker-b"),
        (nameservers["nameserver-a"], nameservers["nameserver-b"]),
    )
    assert note[1] in altered or words in LEAVES_NOTHING
    assert note[2] not in altered


def test_a_resending_that_is_refused_says_how_many_were_sent(users: Guarded) -> None:
    error = error_of(users.terminal(READER).run("dlq", "resend", "T", "--all", "--to", "origin"))
    assert error.endswith("(0 of 2 dead letters are sent)")
