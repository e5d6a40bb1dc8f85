"""A broker with `aclEnable`: unsigned and denied requests change nothing, changed files count, 50 to 54 change them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from pyrmq_core.errors import InvalidArgument, MissingLibrary
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.plain_acl import UpdateAclConfig
from pyrmq_core.servers.access.plain_files import PlainAcl
from pyrmq_core.servers.broker import BrokerConfig, run_broker
from tests.servers.access.plain_home import ADMIN, SECRET, USER, plain_home
from tests.servers.access.requests import heart_beat, signed
from tests.servers.broker.serving import Served, config, message, serving
from tests.support.waiting import until

NO_KEY = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"


@asynccontextmanager
async def guarded(directory: Path, **settings: str) -> AsyncIterator[Served]:
    given = {"aclEnable": "true", "rocketmqHome": str(directory / "home"), **settings}
    async with serving(directory / "store", **given) as served:
        yield served


async def ask(served: Served, request: Command, key: str = ADMIN) -> Command:
    return await served.ask(signed(request, key, SECRET))


def send(topic: str, body: bytes = b"body") -> Command:
    return message(topic, body).to_command()


def acl_of(served: Served) -> PlainAcl:
    acl = served.running.broker.access.plain
    assert acl is not None
    return acl


async def test_what_is_denied_changes_nothing(tmp_path: Path) -> None:
    """Also as a first frame, one-way, in a heartbeat of many groups, and as a pull that would be held."""
    plain_home(tmp_path / "home")
    async with guarded(tmp_path) as served:
        broker = served.running.broker
        unsigned = await served.another().ask(send("both"))
        assert (unsigned.code, unsigned.remark) == (1, NO_KEY)
        denied = [
            send("other"),
            heart_beat(*((f"g{number}", ("both", "other")) for number in range(60))),
            heart_beat(("group", ("other",))),
            UpdateConsumerOffset("group", "other", 0, 5).to_command(),
            Command(11, {"topic": "other", "consumerGroup": "group", "queueId": "0", "sysFlag": "2"}),
            Command(17, {"topic": "made"}),
        ]
        for request in denied:
            await served.pool.send_oneway(served.running.address, request, timeout=5)
            oneway = signed(request, USER, SECRET)
            await served.pool.send_oneway(served.running.address, oneway, timeout=5)
            for refused in (await served.ask(request), await served.ask(oneway)):
                assert refused.code == 1
                assert (refused.remark or "").startswith("org.apache.rocketmq.acl.common.AclException: ")
        assert not broker.clients.table.consumers
        assert not broker.clients.table.producers
        assert broker.clients.held.count == 0
        assert not {"other", "made", "both"} & {topic.topic for topic in broker.tables.topics}
        assert broker.tables.offsets.committed("group", "other", 0) is None
        # The same connection works once it signs.
        assert (await ask(served, send("both"), USER)).code == 0
        assert (await ask(served, heart_beat(("group", ("both",))), USER)).code == 0
        assert set(broker.clients.table.consumers) == {"group"}


@pytest.mark.parametrize("code", [34, 41, 42, 18, 200, 225, 400, 401, 200151])
async def test_a_body_too_large_to_be_read_for_permissions_is_refused(tmp_path: Path, code: int) -> None:
    plain_home(tmp_path / "home")
    async with guarded(tmp_path, maxHeartbeatBytes="2000") as served:
        large = await ask(served, Command(code, body=b"[" * 2001))
        assert large.code == 29
        assert large.remark == "the body has 2001 bytes, and 2000 are read for access control (maxHeartbeatBytes)"


async def test_a_changed_file_counts_and_a_broken_one_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = plain_home(tmp_path)
    acl = PlainAcl(tmp_path)
    acl.load()
    request = signed(send("pub"), USER, SECRET)
    before, later = path.read_text(), time.time()
    for text, answer in [
        (before.replace("pub=PUB", "pub=SUB"), "No default permission for topic:pub"),
        (before + "  - broken", "No default permission for topic:pub"),
        (before.replace(SECRET, "short"), "No default permission for topic:pub"),
        ("", "No default permission for topic:pub"),
        (before, ""),
        (before.replace("accessKey: ordinary", "accessKey: renamed"), "No acl config for ordinary"),
        (before.replace("Addresses: []", "Addresses: [127.0.0.*]"), ""),
    ]:
        path.write_text(text)
        os.utime(path, (later := later + 1,) * 2)  # the system's time of a change may stand still for some milliseconds
        await acl.refresh()
        assert acl.rules.denial(request, "127.0.0.1") == answer
        await acl.refresh()
    path.unlink()
    await acl.refresh()
    assert acl.rules.denial(request, "127.0.0.1") == "No acl config for ordinary"
    broken = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(broken) == 3
    assert all(str(path) in line and "stay as they were" in line and SECRET not in line for line in broken)


async def test_files_are_looked_at_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrmq_core.servers.access.plain_files.WATCH_SECONDS", 0.01)
    path = plain_home(tmp_path)
    acl = PlainAcl(tmp_path)
    acl.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(acl.run)
        path.write_text(path.read_text().replace(USER, "renamed"))
        await until(lambda: "renamed" in acl.rules.accounts, 30)
        nursery.cancel_scope.cancel()


async def test_accounts_also_come_from_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain_home(tmp_path)
    for name, key in [("acl/deep/more.yaml", "further"), ("acl/tools.yml", "never"), ("acl/again.yml", USER)]:
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"accounts": [{"accessKey": key, "secretKey": f"{key}-secret"}]}))
    acl = PlainAcl(tmp_path)
    acl.load()
    assert set(acl.rules.accounts) == {ADMIN, USER, "further"}
    assert acl.rules.accounts[USER].secret_key == f"{USER}-secret"  # the folder comes first
    assert f"account {USER} is in more than one file" in caplog.text


async def test_an_administrator_changes_accounts_while_the_broker_runs(tmp_path: Path) -> None:
    path = plain_home(tmp_path / "home")
    path.chmod(0o640)
    async with guarded(tmp_path) as served:
        put = UpdateAclConfig("a-new-one", "new-s3cret", topic_perms="t=PUB,u=PUB|SUB", default_group_perm="SUB")
        assert (await ask(served, put.to_command(), USER)).remark == (
            "org.apache.rocketmq.acl.common.AclException: "
            "Need admin permission for request code=50, but accessKey=ordinary is not"
        )
        assert (await ask(served, put.to_command())).code == 0
        sent = await served.ask(signed(send("t"), "a-new-one", "new-s3cret"))
        assert sent.code == 0
        changed = UpdateAclConfig("a-new-one", "newer-s3cret", admin=True, topic_perms="t=SUB")
        assert (await ask(served, changed.to_command())).code == 0
        entry = yaml.safe_load(path.read_text())["accounts"][-1]
        assert entry == {
            "accessKey": "a-new-one",
            "secretKey": "newer-s3cret",
            "admin": True,
            "defaultGroupPerm": "SUB",
            "topicPerms": ["t=SUB"],
        }
        assert path.stat().st_mode & 0o777 == 0o640
        shown = json.loads(bytes((await ask(served, Command(54))).body))
        assert shown["plainAccessConfigs"][-1] == {**entry, "admin": True}
        version = (await ask(served, Command(52), USER)).ext
        assert json.loads(version["version"])["counter"] == 2
        assert json.loads(version["allAclFileVersion"]) == {str(path): json.loads(version["version"])}
        assert (version["brokerName"], version["clusterName"]) == ("broker-a", "DefaultCluster")
        assert (await ask(served, Command(51, {"accessKey": "a-new-one"}))).code == 0
        assert (await served.ask(signed(send("t"), "a-new-one", "newer-s3cret"))).remark == (
            "org.apache.rocketmq.acl.common.AclException: No acl config for a-new-one"
        )
        assert (await ask(served, Command(53, {"globalWhiteAddrs": "127.0.0.1,10.0.0.1"}))).code == 0
        assert (await served.ask(send("any"))).code == 0


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (UpdateAclConfig("a-new-one", "short").to_command(), 209, "length should longer than 6"),
        (UpdateAclConfig("a-new-one", None).to_command(), 209, "cannot be null"),
        (Command(50), 209, "accessKey"),
        (UpdateAclConfig("a-new-one", "new-s3cret", topic_perms="t").to_command(), 209, "Parse Resource format error"),
        (UpdateAclConfig("a-new-one", "new-s3cret", topic_perms="t=ANY").to_command(), 209, "permission error for t=A"),
        (UpdateAclConfig("a-new-one", "new-s3cret", "10.0.0.999").to_command(), 209, "Netaddress examine Exception"),
        (
            Command(51, {"accessKey": "nobody-here"}),
            210,
            "The accesskey[nobody-here] corresponding to access",
        ),
        (Command(53, {"globalWhiteAddrs": "10.0.0.x"}), 211, "Netaddress examine Exception"),
        (Command(53, {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/etc/passwd"}), 211, "updated failed"),
    ],
)
async def test_a_wrong_change_is_refused_and_written_nowhere(
    tmp_path: Path, request_: Command, code: int, text: str
) -> None:
    path = plain_home(tmp_path / "home")
    before = path.read_text()
    async with guarded(tmp_path) as served:
        refused = await ask(served, request_)
        assert refused.code == code
        assert text in (refused.remark or "")
        assert len(acl_of(served).rules.accounts) == 2
    assert path.read_text() == before


@pytest.mark.parametrize("code", [50, 51, 52, 53, 54])
async def test_without_plain_acl_its_administration_is_refused(tmp_path: Path, code: int) -> None:
    async with serving(tmp_path) as served:
        refused = await served.ask(Command(code, {"accessKey": "x", "globalWhiteAddrs": ""}))
        assert (refused.code != 0, refused.remark) == (True, "aclEnable is false at this broker")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("accounts: [", "this is no YAML"),
        ("- a", "the file is no table"),
        ("accounts: [{accessKey: a-new-one}]", "cannot be null"),
    ],
)
async def test_a_broker_with_a_broken_file_does_not_start(tmp_path: Path, text: str, fault: str) -> None:
    path = plain_home(tmp_path / "home", text)
    settings = config(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path / "home"))
    with pytest.raises(InvalidArgument) as caught:
        await run_broker(settings)
    assert str(path) in str(caught.value)
    assert fault in str(caught.value)
    assert not (tmp_path / "store").exists()


async def test_a_broker_without_a_home_or_the_library_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(InvalidArgument, match="aclEnable=true needs rocketmqHome"):
        await run_broker(config(tmp_path / "store", aclEnable="true"))
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert BrokerConfig().access.home == tmp_path
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingLibrary, match=r'pip install "pyrmq-spark\[acl\]"'):
        await run_broker(config(tmp_path / "store", aclEnable="true"))


def test_settings_hide_passwords() -> None:
    settings: dict[str, Any] = {"initAuthenticationUser": '{"username":"u","password":"hidden-1"}'}
    broker_config = BrokerConfig().with_settings(settings)
    assert "hidden-1" not in repr(broker_config) + str(broker_config.to_properties())


async def test_changed_settings_are_as_private_as_their_file(tmp_path: Path) -> None:
    """Settings have passwords; those of access control cannot be changed over the network."""
    plain_home(tmp_path / "home")
    conf = tmp_path / "broker.conf"
    conf.touch(0o600)
    conf.write_text("traceOn=true\ntls.server.keyPassword=hidden-1\n")
    async with guarded(tmp_path, brokerConfigPath=str(conf)) as served:
        assert (await ask(served, Command(25, body=b"traceOn=false"))).code == 0
        assert (await ask(served, Command(25, body=b"traceOn=true"), USER)).code == 1
        for setting in (b"aclEnable=false", b"rocketmqHome=/tmp", b"authenticationEnabled=false"):
            assert (await ask(served, Command(25, body=setting))).code in (16, 29)
    assert "traceOn=false" in conf.read_text()
    for path in (conf, conf.with_name("broker.conf.bak")):
        assert path.stat().st_mode & 0o777 == 0o600
