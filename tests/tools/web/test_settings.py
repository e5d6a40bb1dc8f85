"""Settings on the page: what differs, what a change shows before it, and its way back, over a cluster of our own."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, Command, RequestCode
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.figures.broker_config import BrokerConfigText
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.testing import ResponseCode, refusal
from pyrmq_core.tools.web.setting_changes import create_commands, group_command, topic_command
from tests.support.consumer_jobs import Seen, consuming, send
from tests.tools.web.serving import Served, fill, served
from tests.tools.web.test_changes import asked, undo_of

SECRET = "nobody-may-read-this"


@pytest.fixture
async def changing(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=2, change_log=tmp_path / "log") as page:
        await fill(page.cluster.nameserver)
        yield page


def rows_of(text: str) -> dict[str, str]:
    """Returns the value of each setting in the page's tables, without tags."""
    cells = re.findall(r'<tr><td class="k">([^<]*)</td>.*?data-head="value">(.*?)</td></tr>', text)
    return {name: re.sub("<[^>]*>", "", value) for name, value in cells}


def shown_before(text: str) -> list[list[str]]:
    rows = re.findall(r'<tr><td class="k">([^<]*)</td><td>([^<]*)</td><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)', text)
    return [list(row) for row in rows]


async def run(page: Served, command: str) -> None:
    words = [*shlex.split(command)[1:], "-n", page.cluster.nameserver, "--timeout", "60"]
    await trio.run_process([sys.executable, "-m", "pyrmq_core.tools.cli", *words])


async def test_a_topic_is_created_and_changed(changing: Served) -> None:
    form = {"readQueueNums": "3", "writeQueueNums": "3", "perm": "rw", "order": "no", "type": "FIFO"}
    assert "A new topic" in (await changing.get("/topic-settings")).text
    status, text, confirmation = await asked(changing, "/topic-settings", topic="bills", **form)
    assert (status, "Create topic bills at broker-a, broker-b." in text) == (200, True)
    assert ["broker-b", "message.type", "", "FIFO"] in shown_before(text)
    assert (await changing.get("/topic-settings", topic="bills")).status_code == 404
    done = await changing.http.post("/confirmed", data=confirmation)
    assert undo_of(done.text) == ["pyrmq topic delete bills"]
    settings = (await changing.get("/topic-settings", topic="bills")).text
    assert (rows_of(settings)["perm"], rows_of(settings)["message.type"]) == ("6", "FIFO")
    assert '<option value="FIFO" selected>' in settings
    _, text, confirmation = await asked(changing, "/topic-settings", topic="bills", **{**form, "perm": "r"})
    assert shown_before(text) == [[broker, "perm", "6", "4"] for broker in ("broker-a", "broker-b")]
    done = await changing.http.post("/confirmed", data=confirmation)
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        after = (await admin.topics.configs("bills")).answers
        assert {config.perm for config in after.values()} == {Permission.READ}
        assert {config.attributes["message.type"] for config in after.values()} == {"FIFO"}
    assert undo_of(done.text) == ["pyrmq topic create bills -r 3 -w 3 --attribute message.type=FIFO"]
    log = (await changing.get("/changes")).text
    assert log.index("Change topic bills at broker-a, broker-b.") < log.index("Create topic bills at")
    status, text, confirmation = await asked(changing, "/topic-settings", topic="bills", **{**form, "perm": "r"})
    assert (status, "has these settings already" in text, confirmation) == (400, True, {})


async def test_brokers_that_differ_and_the_way_back(changing: Served) -> None:
    """The commands give each broker its former settings again."""
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await admin.create_topic("orders", queues=6, broker="broker-b", perm=Permission.READ)
        settings = rows_of((await changing.get("/topic-settings", topic="orders")).text)
        assert settings["perm"] == "6 at broker-a; 4 at broker-b"
        assert settings["order"] == "false"
        before = (await admin.topics.configs("orders")).answers
        form = {"readQueueNums": "8", "writeQueueNums": "8", "perm": "rw", "order": "no"}
        _, text, confirmation = await asked(changing, "/topic-settings", topic="orders", **form)
        assert ["broker-b", "perm", "4", "6"] in shown_before(text)
        commands = undo_of((await changing.http.post("/confirmed", data=confirmation)).text)
        assert (await admin.topics.configs("orders")).answers != before
        for command in commands:
            await run(changing, command)
        assert (await admin.topics.configs("orders")).answers == before


async def test_a_group_is_created_and_changed(changing: Served) -> None:
    assert "A new group" in (await changing.get("/group-settings")).text
    _, text, confirmation = await asked(changing, "/group-settings", group="audit", retryMaxTimes="-1")
    assert ["broker-a", "retryMaxTimes", "", "-1"] in shown_before(text)
    done = await changing.http.post("/confirmed", data=confirmation)
    assert undo_of(done.text) == ["pyrmq group delete audit"]
    _, text, confirmation = await asked(
        changing, "/group-settings", group="audit", retryMaxTimes="3", consumeEnable="no", consumeMessageOrderly=""
    )
    assert shown_before(text) == [
        [broker, *change]
        for broker in ("broker-a", "broker-b")
        for change in (["consumeEnable", "true", "false"], ["retryMaxTimes", "-1", "3"])
    ]
    done = await changing.http.post("/confirmed", data=confirmation)
    assert rows_of((await changing.get("/group-settings", group="audit")).text)["consumeEnable"] == "false"
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        for command in undo_of(done.text):
            await run(changing, command)
        assert {(c.retry_max_times, c.consume_enable) for c in (await admin.groups.config("audit")).values()} == {
            (-1, True)
        }


async def test_settings_that_move_after_they_were_shown(changing: Served) -> None:
    form = {"readQueueNums": "8", "writeQueueNums": "8", "perm": "rw", "order": "no"}
    _, _, confirmation = await asked(changing, "/topic-settings", topic="orders", **form)
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await admin.create_topic("orders", queues=5)
        answer = await changing.http.post("/confirmed", data=confirmation)
        assert "Nothing is changed yet, since" in answer.text
        assert ["broker-a", "writeQueueNums", "5", "8"] in shown_before(answer.text)
        configs = (await admin.topics.configs("orders")).answers.values()
        assert {config.write_queue_nums for config in configs} == {5}


TOPIC = {"readQueueNums": "8", "writeQueueNums": "8", "perm": "rw", "order": "no"}


async def test_attributes_that_stay(changing: Served) -> None:
    """The way back of a new attribute leaves it, which the page says before the change and after it."""
    warning = "No command takes this away again: message.type, reserve.time."
    form = {**TOPIC, "topic": "orders", "type": "FIFO", "attributes": "reserve.time=72"}
    _, text, confirmation = await asked(changing, "/topic-settings", **form)
    assert warning in text
    assert warning in (await changing.http.post("/confirmed", data=confirmation)).text
    _, text, _ = await asked(changing, "/topic-settings", **{**form, "perm": "r"})
    assert "No command" not in text


@pytest.mark.parametrize(
    ("former", "last"), [({}, "--delete"), ({"broker-b": 4, "broker-a": 3}, "broker-a:3 broker-b:4")]
)
async def test_the_order_configuration(changing: Served, former: dict[str, int], last: str) -> None:
    """It is part of the way back to an order topic's former settings, and stays where a topic is no longer one."""
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        if former:
            await admin.topics.set_order("orders", former)
        _, text, confirmation = await asked(changing, "/topic-settings", topic="orders", **{**TOPIC, "order": "yes"})
        assert "order configuration" not in text
        done = await changing.http.post("/confirmed", data=confirmation)
        assert await admin.topics.order("orders") == {"broker-a": 8, "broker-b": 8}
    assert undo_of(done.text) == ["pyrmq topic create orders -r 4 -w 4", f"pyrmq topic order orders {last}"]
    _, text, confirmation = await asked(changing, "/topic-settings", topic="orders", **TOPIC)
    warning = "The order configuration at the NameServers stays until pyrmq topic order orders --delete deletes it."
    assert warning in text
    done = await changing.http.post("/confirmed", data=confirmation)
    assert warning in done.text
    assert undo_of(done.text) == ["pyrmq topic create orders -r 8 -w 8 --order"]


async def test_a_deletion_is_taken_back_where_it_was(changing: Served) -> None:
    """A topic or group that only one of the masters had is made again there alone."""
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await admin.create_topic("bills", queues=2, broker="broker-b")
        await admin.groups.create("audit", broker="broker-b")
    for form, begin in (({"topic": "bills"}, "pyrmq topic create bills"), ({"group": "audit"}, "pyrmq group create")):
        _, _, confirmation = await asked(changing, "/delete", **form)
        (command,) = undo_of((await changing.http.post("/confirmed", data=confirmation)).text)
        assert command.startswith(begin)
        assert command.endswith(" -b broker-b")


@pytest.mark.parametrize("form", [{"topic": "orders"}, {"group": "billing"}])
async def test_what_a_broker_does_not_list_is_not_deleted(changing: Served, form: dict[str, str]) -> None:
    async def refused(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_ERROR, "not now")

    for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_CONSUME_STATS):
        changing.cluster.control(code, refused, server="broker-b")
    status, text, confirmation = await asked(changing, "/delete", **form)
    assert (status, "not now" in text, confirmation) == (502, True, {})


@pytest.mark.parametrize("language", ["en", "zh-CN"])
async def test_what_changed_though_one_broker_refused(changing: Served, tmp_path: Path, language: str) -> None:
    """The page and its log say where it is changed, and the settings that are shown next are those."""

    async def refused(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not here")

    changing.cluster.control(RequestCode.UPDATE_AND_CREATE_TOPIC, refused, server="broker-b")
    _, _, confirmation = await asked(changing, "/topic-settings", topic="orders", **TOPIC)
    assert rows_of((await changing.get("/topic-settings", topic="orders")).text)["readQueueNums"] == "4"
    changing.http.cookies.set("language", language)
    answer = await changing.http.post("/confirmed", data=confirmation)
    english = "changed: broker-a; not changed: broker-b"
    said = {"en": english, "zh-CN": "已更改：broker-a；未更改：broker-b"}[language]
    assert (answer.status_code, said in answer.text) == (403, True)
    assert said in (await changing.get("/changes")).text
    assert english in await trio.Path(tmp_path / "log").read_text()
    changing.http.cookies.set("language", "en")
    after = rows_of((await changing.get("/topic-settings", topic="orders")).text)
    assert after["readQueueNums"] == "8 at broker-a; 4 at broker-b"


WRONG = (
    ("/topic-settings", {**TOPIC, "topic": "a b"}),
    *(("/topic-settings", {**TOPIC, "topic": name}) for name in ("TBW102", "broker-a", "DefaultCluster")),
    *(("/delete", {"topic": name}) for name in ("TBW102", "broker-a", "DefaultCluster")),
    ("/topic-settings", {**TOPIC, "topic": "new", "readQueueNums": "0"}),
    ("/topic-settings", {**TOPIC, "topic": "new", "writeQueueNums": "-1"}),
    ("/topic-settings", {**TOPIC, "topic": "new", "perm": "x"}),
    ("/topic-settings", {**TOPIC, "topic": "new", "type": "MIXTURE"}),
    ("/topic-settings", {**TOPIC, "topic": "new", "attributes": "reserve"}),
    ("/topic-settings", {**TOPIC, "topic": "new", "cluster": "nowhere"}),
    ("/group-settings", {"group": "CID_RMQ_SYS_TRANS"}),
    ("/group-settings", {"group": "audit", "retryMaxTimes": "-2"}),
    ("/group-settings", {"group": "audit", "retryQueueNums": "many"}),
    ("/group-settings", {"group": "audit", "consumeEnable": "perhaps"}),
)


async def test_a_wrong_form_is_refused_before_a_confirmation(changing: Served) -> None:
    for path, form in WRONG:
        status, _, confirmation = await asked(changing, path, **form)
        assert (form, status, confirmation) == (form, 400, {})


async def test_only_a_page_that_may_change_has_the_forms() -> None:
    async with served(brokers=1) as page:
        await fill(page.cluster.nameserver)
        for path in ("/topic-settings?topic=orders", "/group-settings?group=billing", "/topics", "/groups"):
            text = (await page.get(path)).text
            assert 'method="post"' not in text
            assert '-settings">Create' not in text
        assert (await page.http.post("/topic-settings", data=TOPIC)).status_code == 403


async def test_servers_beside_each_other() -> None:
    async with served(settings={"deleteWhen": "05"}) as page:
        async with Admin(nameserver=page.cluster.nameserver) as admin:
            await admin.brokers.update_config({"fileReservedTime": "48"}, broker="broker-b")
        assert "/servers" in (await page.get("/")).text
        rows = rows_of((await page.get("/servers")).text)
        assert (rows["fileReservedTime"], rows["deleteWhen"]) == ("72 at broker-a; 48 at broker-b", "05")
        assert "scanNotActiveBrokerInterval" in rows
        assert "flushDiskType" not in rows
        everything = (await page.get("/servers", all="yes")).text
        assert rows_of(everything)["flushDiskType"] == "ASYNC_FLUSH"
        assert list(rows_of((await page.get("/servers", filter="reserved")).text)) == ["fileReservedTime"]


async def test_a_secret_that_a_server_lists_is_not_shown() -> None:
    settings = {"metricsGrpcExporterHeader": SECRET, "brokerName": "broker-a"}

    async def listed(_request: Command, _peer: Peer) -> Command:
        return BrokerConfigText(settings).to_command()

    async with served(brokers=1) as page:
        page.cluster.control(RequestCode.GET_BROKER_CONFIG, listed)
        text = (await page.get("/servers", all="yes")).text
    assert rows_of(text)["metricsGrpcExporterHeader"] == "********"
    assert SECRET not in text


async def test_members_that_read_different_topics(changing: Served) -> None:
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await admin.create_topic("bills", queues=2)
    await send(changing.cluster.nameserver, "bills", [str(number) for number in range(8)])  # to each queue
    first, second = Seen(), Seen()
    async with (
        consuming(changing.cluster.nameserver, "audit", "orders", first),
        consuming(changing.cluster.nameserver, "audit", "bills", second, instance_name="second"),
    ):
        await first.wait(1)
        await second.wait(1)
        text = (await changing.get("/group-settings", group="audit")).text
    assert "members of group audit differ" in text
    assert re.fullmatch(r"\* at \S+; none at \S+|none at \S+; \* at \S+", rows_of(text)["bills"])
    assert "Its members: clustering, passively" in text


def test_the_commands_of_brokers_that_differ() -> None:
    readable, closed = TopicConfig("t x", 4, 4), TopicConfig("t x", 4, 4, Permission.WRITE, order=True)
    same, others = ({"b": (readable, readable), "a": (config, readable)} for config in (readable, closed))
    assert create_commands(same, topic_command) == ("pyrmq topic create 't x' -r 4 -w 4",)
    assert create_commands(others, topic_command) == (
        "pyrmq topic create 't x' -r 4 -w 4 --perm w --order -b a",
        "pyrmq topic create 't x' -r 4 -w 4 -b b",
    )
    group = SubscriptionGroupConfig("g", consume_enable=False)
    assert group_command(group) == "pyrmq group create g -r 16 -q 1 --no-consume --broadcast --no-orderly"
