"""Broker and NameServer with users: denied requests change nothing, 3001 to 3010, the file, and registration."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.errors import InvalidArgument, NetworkError, StoreError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.send_message import V1_NAMES
from pyrmq_core.protocol.requests.broker.users import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateUser,
)
from pyrmq_core.servers.access.user_file import UserFile
from pyrmq_core.servers.access.user_requests import answer
from pyrmq_core.servers.access.users.rules import UserRules
from pyrmq_core.servers.access.users.values import SUPER, User, policies_of
from pyrmq_core.servers.broker import BrokerConfig, run_broker
from pyrmq_core.servers.nameserver import NameServerConfig
from tests.servers.access.requests import heart_beat, signed
from tests.servers.broker.serving import SMALL_FILES, message
from tests.support.waiting import until

ROOT, USER = ("root", "root-password"), ("u", "user-password")
GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-password"}),
}
NORMAL = {"username": USER[0], "password": USER[1], "userType": "Normal", "userStatus": "enable"}


def policy(resource: str, *actions: str) -> dict[str, Any]:
    entry = {"resource": resource, "actions": list(actions), "decision": "Allow"}
    return {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": [entry]}]}


@dataclass(frozen=True)
class Guarded:
    """One server that has users, and a connection to it."""

    pool: ConnectionPool
    address: str

    async def ask(self, request: Command, user: tuple[str, str] | None = ROOT) -> Command:
        sent = request if user is None else signed(request, *user)
        return await self.pool.call(self.address, sent, timeout=30)


@asynccontextmanager
async def cluster(directory: Path, **settings: str) -> AsyncIterator[tuple[Guarded, Guarded]]:
    """Yields a guarded broker and the guarded NameServer that it is registered with."""
    nameserver_settings = {**GUARDED, "authConfigPath": str(directory / "namesrv-auth")}
    started = EmbeddedCluster(
        settings={**GUARDED, **SMALL_FILES, **settings}, nameserver_settings=nameserver_settings, directory=directory
    )
    async with started, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        yield Guarded(pool, started.brokers["broker-a"]), Guarded(pool, started.nameserver)
        await pool.aclose()
        nursery.cancel_scope.cancel()


async def make_user(server: Guarded, *grants: tuple[str, str]) -> None:
    assert (await server.ask(CreateUser("u", NORMAL).to_command())).code == 0
    for resource, action in grants:
        assert (await server.ask(CreateAcl("User:u", policy(resource, action)).to_command())).code == 0


async def test_what_is_denied_changes_nothing_and_the_broker_registers_signed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (broker, nameserver):
        for server in (broker, nameserver):
            refused = await server.ask(Command(105, {"topic": "TBW102"}), None)
            assert (refused.code, refused.remark) == (16, "username cannot be null.")
        for code in (103, 104, 318, 216):
            assert (await nameserver.ask(Command(code, {"clusterName": "DefaultCluster"}), None)).code == 16
        await make_user(broker, ("Topic:t", "Pub"))
        await make_user(nameserver, ("Topic:t", "Pub"))
        route = await nameserver.ask(Command(105, {"topic": "TBW102"}))
        assert (route.code, broker.address.encode() in bytes(route.body)) == (0, True)
        denied = await nameserver.ask(Command(105, {"topic": "TBW102"}), USER)
        assert (denied.code, denied.remark) == (
            16,
            "User:u has no permission to access Topic:TBW102 from 127.0.0.1, no matched policies.",
        )
        assert (await broker.ask(message("t").to_command(), USER)).code == 0
        assert (await broker.ask(message("x").to_command(), USER)).code == 16
        beat = await broker.ask(heart_beat(("g", ("t",))), USER)
        assert (beat.code, beat.remark) == (
            16,
            "User:u has no permission to access Group:g from 127.0.0.1, no matched policies.",
        )
        assert (await broker.ask(Command(203, {"consumerGroup": "g"}))).code == 206
        assert (await nameserver.ask(Command(103, {"clusterName": "DefaultCluster"}), USER)).code == 16
        assert (await nameserver.ask(Command(318, body=b"orderMessageEnable=true"), USER)).code == 16
        black = await nameserver.ask(Command(318, body=b"authenticationEnabled=false"))
        assert (black.code, black.remark) == (16, "Can not update config in black list.")


@pytest.mark.parametrize("code", [10, 310, 320, 324, 325])
async def test_a_send_in_no_spelling_reaches_a_topic_that_is_not_granted(tmp_path: Path, code: int) -> None:
    """The spelling of a name that was judged counts, whatever else is in the header."""
    letters = message("x").to_command().ext
    names = {V1_NAMES[letter]: text for letter, text in letters.items()}
    async with cluster(tmp_path) as (broker, _):
        await make_user(broker, ("Topic:t", "Pub"))
        for topic in ("t", "x"):
            assert (await broker.ask(message(topic).to_command())).code == 0
        for granted in ({"b": "t"}, {"topic": "t"}, {"b": "t", "topic": "t"}, {}):
            for others in ({"b": "x"}, {"topic": "x"}, {"b": "x", "topic": "x"}):
                header = {**letters, **names, **others, **granted}
                for ext in (header, {name: text for name, text in header.items() if name in granted or name in others}):
                    await broker.ask(Command(code, {**names, **letters, **ext}, b"x"), USER)
                    await broker.ask(Command(code, ext, b"x"), USER)
        ends = [
            OffsetFound.from_command(await broker.ask(GetMaxOffset("x", queue_id).to_command())).offset
            for queue_id in range(4)
        ]
        assert ends == [1, 0, 0, 0]
        stored = OffsetFound.from_command(await broker.ask(GetMaxOffset("t", 0).to_command())).offset
        assert (stored > 1) == (code not in (324, 325))


async def test_a_change_is_judged_by_the_rules_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user's change of a user that a change under way makes a super user is refused."""
    users = UserFile(None)
    policies = policies_of([{"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}])
    users.rules = UserRules(
        {"root": User("root", "p", SUPER), "a": User("a", "p"), "b": User("b", "p")}, {"User:a": policies}
    )
    under_way, go_on = threading.Event(), threading.Event()

    def slow_write(_: UserRules) -> None:
        under_way.set()
        assert go_on.wait(30)

    monkeypatch.setattr(users, "_write", slow_write)
    promotion = signed(UpdateUser("b", {"userType": "Super"}).to_command(), "root", "p")
    takeover = signed(UpdateUser("b", {"password": "mine"}).to_command(), "a", "p")
    answers: dict[str, Command] = {}

    async def ask(name: str, request: Command) -> None:
        answers[name] = await answer(users, request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "promotion", promotion)
        await until(under_way.is_set)
        nursery.start_soon(ask, "takeover", takeover)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert answers["promotion"].code == 0
    assert answers["takeover"].code == 16
    assert users.rules.users["b"].password == "p"


async def test_users_and_policies_are_administered_and_survive_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        for server in servers:
            await make_user(server, ("Topic:t", "Pub"), ("Group:*", "Sub"))
            assert (await server.ask(UpdateUser("u", {"userStatus": "disable"}).to_command())).code == 0
            disabled = await server.ask(GetUser("u").to_command(), USER)
            assert disabled.remark == "User:u is disabled."
            assert json.loads(bytes((await server.ask(GetUser("u").to_command())).body)) == {
                **NORMAL,
                "userStatus": "disable",
            }
    for folder in (tmp_path / "broker-a" / "config", tmp_path / "namesrv-auth"):
        assert (folder / "authUsers.json").stat().st_mode & 0o777 == 0o600
    async with cluster(tmp_path) as servers:
        for server in servers:
            users = json.loads(bytes((await server.ask(ListUsers().to_command())).body))
            assert [user["username"] for user in users] == ["inner", "root", "u"]
            (acl,) = json.loads(bytes((await server.ask(ListAcls("User:u", "Topic").to_command())).body))
            assert acl == policy("Topic:t", "Pub")
            deleted = DeleteAcl("User:u", None, "Group:*").to_command()
            assert (await server.ask(deleted)).code == 0
            assert json.loads(bytes((await server.ask(GetAcl("User:u").to_command())).body)) == policy("Topic:t", "Pub")
            assert (await server.ask(DeleteUser("u").to_command())).code == 0
            assert not (await server.ask(GetUser("u").to_command())).body
            assert (await server.ask(GetAcl("User:u").to_command())).remark == "The subject is not exist."


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (CreateUser("", {"password": "x"}), 29, "The username is blank"),
        (CreateUser("v", {}), 16, "password can not be blank"),
        (CreateUser("root", {"password": "x"}), 16, "The user is existed"),
        (UpdateUser("v", {"password": "x"}), 16, "The user is not exist"),
        (GetUser(), 29, "The username is blank"),
        (CreateAcl("User:u", {}), 1, "The body of acl is null"),
        (CreateAcl("User:v", policy("Topic:t", "Pub") | {"subject": None}), 16, "The subject of User:v is not exist."),
        (CreateAcl("User:u", policy("Nothing:t", "Pub")), 16, "The resource is null."),
        (DeleteAcl("User:u"), 16, "The acl is not exist."),
        (DeleteAcl("User:u", None, "Nothing:t"), 16, "The resource is null."),
        (DeleteAcl("Group:u"), 16, "The subject is null."),
        (Command(3001, {"username": "v"}, b"["), 1, "user: the body is not JSON"),
    ],
)
async def test_a_wrong_change_is_refused(tmp_path: Path, request_: Any, code: int, text: str) -> None:
    async with cluster(tmp_path) as (broker, _):
        await make_user(broker)
        command = request_ if isinstance(request_, Command) else request_.to_command()
        refused = await broker.ask(command)
        assert refused.code == code
        assert (refused.remark or "").startswith(text)


async def test_an_ordinary_administrator_cannot_touch_super_users(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (broker, _):
        await make_user(broker, ("Cluster:DefaultCluster", "Update"))
        creation = CreateUser("v", {"password": "x", "userType": "Super"})
        assert (
            await broker.ask(creation.to_command(), USER)
        ).remark == "The super user can only be create by super user"
        for request in (UpdateUser("u", {"userType": "Super"}), UpdateUser("root", {"password": "x"})):
            refused = await broker.ask(request.to_command(), USER)
            assert refused.remark == "The super user can only be update by super user"
        assert (await broker.ask(DeleteUser("root").to_command(), USER)).code == 16
        assert (await broker.ask(CreateUser("v", {"password": "x"}).to_command(), USER)).code == 0
        assert (await broker.ask(GetUser("root").to_command(), USER)).code == 16  # Update is not Get


async def test_a_change_that_is_not_written_does_not_count(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (broker, _):
        (tmp_path / "broker-a" / "config" / "authUsers.json.tmp").mkdir()
        refused = await broker.ask(CreateUser("u", NORMAL).to_command())
        assert (refused.code, "cannot be written" in (refused.remark or "")) == (1, True)
        assert (await broker.ask(GetUser("u").to_command())).body == b""


async def test_without_users_their_administration_is_refused() -> None:
    async with EmbeddedCluster() as started, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for address in (started.nameserver, started.brokers["broker-a"]):
            refused = await pool.call(address, CreateUser("u", NORMAL).to_command(), timeout=30)
            assert (refused.code, "authenticationEnabled is false" in (refused.remark or "")) == (1, True)
        await pool.aclose()
        nursery.cancel_scope.cancel()


async def test_a_broker_with_wrong_credentials_is_not_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = json.dumps({"accessKey": "inner", "secretKey": "another"})

    async def start() -> None:
        async with cluster(tmp_path, innerClientAuthenticationCredentials=wrong):
            raise AssertionError("the broker is registered")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await until(lambda: "REGISTER_BROKER (103) with NO_PERMISSION (16): check signature failed" in caplog.text, 30)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("text", ["{", "[]", '{"users":[{}],"acls":[]}', '{"users":[],"acls":[{"subject":"User:u"}]}'])
async def test_a_broker_whose_users_cannot_be_read_does_not_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "authUsers.json").write_text(text)
    with pytest.raises(StoreError, match=r"authUsers\.json cannot be read"):
        await run_broker(BrokerConfig().with_settings({**GUARDED, "storePathRootDir": str(tmp_path)}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"authorizationEnabled": "true"}, "needs authenticationEnabled=true"),
        ({"authenticationEnabled": "true", "aclEnable": "true"}, "two forms"),
        ({"migrateAuthFromV1Enabled": "true"}, "migrateAuthFromV1Enabled=true: plain_acl.yml is not imported"),
        ({"authenticationEnabled": "maybe"}, "true or false is wanted"),
        ({"initAuthenticationUser": "root:pass"}, "initAuthenticationUser: {"),
        ({"initAuthenticationUser": '{"username":"x"}'}, "initAuthenticationUser: {"),
        ({**GUARDED, "initAuthenticationUser": '{"username":"x","password":""}'}, "need both parts"),
        ({"authenticationProvider": "org.example.Mine"}, "authenticationProvider=org.example.Mine"),
        ({"authenticationWhitelist": "310, 3001"}, "authenticationWhitelist names a code of 3001 to 3010"),
    ],
)
def test_settings_that_would_leave_it_open_are_refused_by_name(settings: dict[str, str], text: str) -> None:
    for config in (BrokerConfig(), NameServerConfig()):
        with pytest.raises(InvalidArgument) as caught:
            config.with_settings(settings)
        assert text in str(caught.value)
        assert "root:pass" not in str(caught.value)


def test_a_nameserver_has_no_plain_acl() -> None:
    with pytest.raises(InvalidArgument, match=r"aclEnable=true: plain_acl\.yml is for brokers alone"):
        NameServerConfig().with_settings({"aclEnable": "true"})


async def test_settings_of_a_nameserver_are_kept_private(tmp_path: Path) -> None:
    """318 writes all settings, passwords too: the file is its owner's alone."""
    store = tmp_path / "namesrv.properties"
    started = EmbeddedCluster(settings=GUARDED, nameserver_settings={**GUARDED, "configStorePath": str(store)})
    async with started, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        request = Command(318, body=b"orderMessageEnable=true")
        assert (await pool.call(started.nameserver, signed(request, *ROOT), timeout=30)).code == 0
        shown = await pool.call(started.nameserver, signed(Command(319), *ROOT), timeout=30)
        await pool.aclose()
        nursery.cancel_scope.cancel()
    assert store.stat().st_mode & 0o777 == 0o600
    assert ROOT[1] in store.read_text()
    assert ROOT[1].encode() not in bytes(shown.body)


async def test_a_replayed_request_is_accepted_as_in_rocketmq(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (broker, _):
        request = message("t").to_command()
        once = Command(request.code, sign(request.ext, request.body, *ROOT), request.body)
        assert [(await broker.ask(once, None)).code for _ in range(2)] == [0, 0]


async def test_unsigned_connections_are_not_closed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (broker, _):
        for _ in range(300):
            try:
                assert (await broker.ask(Command(34, body=b"{}"), None)).code == 16
            except NetworkError as error:  # pragma: no cover
                pytest.fail(str(error))
