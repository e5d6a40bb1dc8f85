"""Groups of lite topics at a served broker: refusals, quotas, receipts, silent clients, locks, and figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio

from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import loads
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic, UpdateTopic
from pyrmq_core.protocol.requests.figures.lite_topics import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteTopicInfo,
    TriggerLiteDispatch,
)
from pyrmq_core.protocol.requests.pop.lite import (
    FIRST,
    LiteAction,
    LiteChange,
    LiteStart,
    LiteSubscriptionCtl,
    PopLiteMessage,
)
from pyrmq_core.protocol.requests.pop.pop_message import POLLING_TIMEOUT, PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.receipt import Receipt
from pyrmq_core.protocol.requests.pop.settle import AckMessage, ChangeInvisibleTime
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.processors.pops.lite import LiteGroupRequests
from pyrmq_core.servers.broker.processors.table import families_of
from tests.servers.broker.serving import Served, serving, until

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
ADD, REMOVE, ALL, LEAVE = LiteAction


async def made(served: Served, group: str = "G", **attributes: str) -> None:
    creation = UpdateTopic("T", 4, 4, 6, attributes="+message.type=LITE")
    assert (await served.ask(creation.to_command())).code == 0
    named = {name.replace("_", "."): value for name, value in attributes.items()}
    config = {"groupName": group, "attributes": {"lite.bind.topic": "T", **named}}
    served.running.broker.tables.groups.put(config, 0)


def change(action: LiteAction, names: str = "", client: str = "c", group: str = "G", topic: str = "T") -> LiteChange:
    return LiteChange(action, client, group, topic, tuple(names.split()))


async def control(served: Served, *changes: LiteChange) -> tuple[int, str | None]:
    answer = await served.ask(LiteSubscriptionCtl(changes).to_command())
    return answer.code, answer.remark


async def pop(served: Served, client: str = "c", messages: int = 32, wait_ms: int = 0, **more: object) -> PopAnswer:
    fields = {"consumer_group": "G", "topic": "T", "invisible_ms": 60_000, **more}
    request = PopLiteMessage(client, max_messages=messages, poll_time_ms=wait_ms, born_time_ms=0, **fields)  # type: ignore[arg-type]
    return PopAnswer.from_command(await served.ask(request.to_command()))


def pop_of(client: str, messages: int = 32) -> Command:
    return PopLiteMessage(client, "G", "T", messages, 60_000, 20_000, 0).to_command()


def bodies(answer: PopAnswer) -> list[str]:
    return [record.body.decode() for record in iterate_records(answer.records)]


async def sent(served: Served, texts: str) -> None:
    for text in texts.split():
        await served.send("T", text.encode(), f"__LITE_TOPIC\x01{text[0]}\x02")


def ack(answer: PopAnswer, offset: int = 0, lite_topic: str = "a", revive: int = 999, **more: object) -> Command:
    times = answer.pop_time_ms, answer.invisible_ms, revive
    receipt = Receipt(offset, *times, "0", "broker-a", 0, offset).encode()
    fields = {"consumer_group": "G", "topic": "T", "queue_id": 0, **more}
    return AckMessage(extra_info=receipt, offset=offset, lite_topic=lite_topic, **fields).to_command()  # type: ignore[arg-type]


def committed(served: Served, name: str = "a") -> int | None:
    return served.running.broker.tables.offsets.committed("G", f"%LMQ%$T${name}", 0)


async def test_a_lite_topic_is_locked_until_its_messages_are_settled(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await sent(served, "a1 a2 a3 b1")
        assert await control(served, change(ADD, "a b")) == (0, None)
        popped = await pop(served, messages=2)
        assert (popped.code, popped.revive_queue_id, bodies(popped), popped.order_count_info) == (
            *(0, 999, ["a1", "a2"]),
            "0;0",
        )
        assert bodies(await pop(served)) == ["b1"]
        assert (await pop(served)).code == POLLING_TIMEOUT
        assert (await served.ask(ack(popped, 1))).code == 0
        assert committed(served) == 0
        async with trio.open_nursery() as nursery:
            waiting: list[list[str]] = []

            async def wait() -> None:
                waiting.append(bodies(await pop(served, wait_ms=30_000)))

            nursery.start_soon(wait)
            assert (await served.ask(ack(popped, 0))).code == 0
        assert waiting == [["a3"]]
        assert committed(served) == 2


async def test_subscriptions_are_refused_as_by_rocketmq(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON, maxLiteSubscriptionCount="3", autoCreateSubscriptionGroup="false") as served:
        await made(served)
        await made(served, "W", **{"lite.sub.wildcard": "true"})
        empty = await served.ask(LiteSubscriptionCtl(()).to_command())
        assert (empty.code, empty.remark) == (604, "LiteSubscriptionCtlRequestBody is empty.")
        assert (await served.ask(Command(200071))).remark == "Request body is null."
        assert (await control(served, change(ADD, "a", group="none")))[0] == 604
        assert (await control(served, change(ADD, "a", group="W")))[0] == 604
        assert (await control(served, change(ADD, "a b$")))[0] == 29
        assert (await control(served, *[change(ADD, "a")] * 101))[0] == 29
        assert await control(served, change(ADD, "a", client=" ")) == (0, None)
        assert len(served.running.broker.deliveries.reviver.waits.lite) == 0
        assert await control(served, change(ADD, "a b c")) == (0, None)
        quota = (2018, "lite subscription quota exceeded 3")
        assert await control(served, change(ADD, "d")) == quota
        assert await control(served, change(ALL, "a b d e", client="d")) == quota
        assert await control(served, change(ALL, "a b c")) == (0, None)  # a renewal
        assert (await control(served, change(ADD, "a", group="G", topic="U")))[0] == 604  # another topic of the client
        assert (await control(served, change(LEAVE, group="W")))[0] == 604
        assert await control(served, change(ALL, client="e")) == (0, None)
        assert await control(served, change(ALL, client="f")) == quota
    async with serving(tmp_path) as served:
        code, remark = await control(served, change(ADD, "a"))
        assert (code, remark) == (604, "this broker keeps no lite topics: enableLmq and enableMultiDispatch are off")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "none"}, 17, "topic[none] not exist"),
        ({"topic": "plain"}, 29, "the topic [plain] message type not match"),
        ({"consumer_group": "other"}, 29, "subscription bind topic not match, other"),
        ({"messages": 33}, 29, "pop message's num is greater than 32"),
        ({"invisible_ms": -1}, 29, "invisibleTime[-1] is illegal"),
        ({"client": "x" * 1025}, 29, "is longer than 1024"),
    ],
)
async def test_pops_are_refused_as_by_rocketmq(
    tmp_path: Path, fields: dict[str, object], code: int, remark: str
) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        assert (await served.ask(UpdateTopic("plain", 4, 4, 6).to_command())).code == 0
        refused = await pop(served, **fields)  # type: ignore[arg-type]
        assert refused.code == code
        assert remark in (refused.remark or "")


async def test_a_pop_that_was_held_is_checked_again(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        assert await control(served, change(ADD, "a")) == (0, None)
        answers: list[int] = []

        async def wait() -> None:
            answers.append((await pop(served, wait_ms=600_000)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: served.running.broker.clients.held.count == 1)
            await served.ask(DeleteTopic("T").to_command())
            served.running.broker.clients.held.wake_all()
        assert answers == [ResponseCode.TOPIC_NOT_EXIST]


async def test_receipts_of_something_else_settle_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        served.running.broker.tables.groups.put({"groupName": "plain", "attributes": {}}, 0)
        await sent(served, "a1 b1")
        assert await control(served, change(ADD, "a")) == (0, None)
        popped = await pop(served)
        for request, code, remark in (
            (ack(popped, consumer_group="plain"), 29, "group type or bind topic not match."),
            (ack(popped, topic="none"), 17, "topic[none] not exist"),
            (ack(popped, queue_id=1), 29, "ack queue illegal."),
            (ack(popped, revive=3), 29, "ack queue illegal."),
            (ack(popped, 7), 208, "offset is illegal"),
            (ack(popped, 1), 13, "offset is illegal"),
            (ack(popped, lite_topic="a/b"), 29, "a lite topic's name has"),
            (ack(popped, lite_topic="b"), 0, ""),  # it was not popped
        ):
            answer = await served.ask(request)
            assert (answer.code, (answer.remark or "")[: len(remark)]) == (code, remark)
        assert (committed(served), committed(served, "b")) == (0, None)
        receipt = Receipt(0, popped.pop_time_ms, popped.invisible_ms, 999, "0", "broker-a", 0, 0).encode()
        extended = ChangeInvisibleTime("G", "T", 0, receipt, 0, 1, "broker-a", "a").to_command()
        assert (await served.ask(extended)).ext["reviveQid"] == "999"
        again = await pop(served, wait_ms=30_000)
        assert (bodies(again), again.order_count_info) == (["a1"], "1")
        assert (await served.ask(ack(popped))).code == 0  # an earlier pop's: without effect
        assert committed(served) == 0


async def test_a_pop_that_is_undone_counts_no_try(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await sent(served, "a1 a2 b1")
        assert await control(served, change(ADD, "a")) == (0, None)
        undone, kept = ("one", True), (None, None)
        for tries, (attempt, suspend) in zip("00011", (undone, undone, kept, undone, kept), strict=True):
            popped = await pop(served, wait_ms=30_000, attempt_id=attempt)
            assert (bodies(popped), popped.order_count_info) == (["a1", "a2"], f"{tries};{tries}")
            for offset in (0,) if suspend else (0, 1):
                fields = popped.pop_time_ms, popped.invisible_ms, 999, "0", "broker-a", 0, offset
                receipt = Receipt(offset, *fields).encode()
                given_back = ChangeInvisibleTime("G", "T", 0, receipt, offset, 1, "broker-a", "a", suspend)
                assert (await served.ask(given_back.to_command())).code == 0


async def test_a_silent_client_is_forgotten_and_its_lite_topics_go_to_the_next(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        lite = served.running.broker.deliveries.reviver.waits.lite
        assert await control(served, change(ADD, "a"), change(ADD, "a b", client="d")) == (0, None)
        assert [client.client_id for client in lite.subscribers("%LMQ%$T$a")] == ["c", "d"]
        lite.expire(0)
        assert (len(lite), lite.subscriptions) == (2, 3)
        await sent(served, "a1 a2")
        assert bodies(await pop(served, "c", 1)) == ["a1"]  # and vanishes
        lite.get("c").renewed_ms -= 1  # type: ignore[union-attr]
        lite.expire(lite.get("d").renewed_ms)  # type: ignore[union-attr]
        assert (len(lite), lite.subscriptions) == (1, 2)
        queue = "G", "%LMQ%$T$a", 0
        ordered = served.running.broker.deliveries.reviver.ordered
        ordered.change(queue, 0, ordered._rows[queue].pop_time_ms, clock.now_ms())
        assert bodies(await pop(served, "d", wait_ms=30_000)) == ["a1", "a2"]
        assert await control(served, change(LEAVE, client="d"), change(LEAVE, client="d")) == (0, None)
        assert (len(lite), lite.subscriptions, lite._subscribers) == (0, 0, {})
        assert (await pop(served, "d")).code == POLLING_TIMEOUT


async def test_one_pop_of_a_group_is_woken_and_the_next_one_if_its_client_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        assert await control(served, *(change(ADD, "a", client=client) for client in "cde")) == (0, None)
        lite, peer, woken = requests_of(served), cast("Peer", object()), list[LateAnswer]()
        first, second = (cast("LateAnswer", lite.pop(pop_of(client), peer)) for client in "de")
        first.wait(woken.append)
        second.wait(woken.append)
        await sent(served, "a1")
        assert woken == [first]
        first.drop()
        assert woken == [first, second]
        second.drop()
        assert not lite.pops.reviver.waits._waiting


async def test_a_renewal_takes_no_lite_topic_of_an_exclusive_group_from_another(tmp_path: Path) -> None:
    """The client is one that the notice of a takeover did not reach. It gets the notice again, and no message."""
    async with serving(tmp_path, **ON) as served:
        await made(served, **{"lite.sub.model": "Exclusive"})
        assert await control(served, change(ADD, "a b"), change(ADD, "a", client="d")) == (0, None)
        lite, notices = requests_of(served), list[Command]()

        class Connection:
            is_full = False

            def post(self, request: Command, **_: object) -> None:
                notices.append(request)

        peer = cast("Peer", SimpleNamespace(connection=Connection(), address="127.0.0.1:1"))
        renewal = LiteSubscriptionCtl((change(ALL, "a b c"),)).to_command()
        assert (await lite.control(renewal, peer)).code == 0
        assert [(notice.code, notice.ext["liteTopic"], notice.ext["clientId"]) for notice in notices] == [
            (200073, "a", "c")
        ]
        await sent(served, "a1 b1 c1")
        assert sorted(bodies(await pop(served))) == ["b1", "c1"]
        assert bodies(await pop(served, "d")) == ["a1"]
        assert await control(served, change(LEAVE, client="d"), change(ALL, "a b c")) == (0, None)
        assert [client.client_id for client in lite.clients.subscribers("%LMQ%$T$a")] == ["c"]


def requests_of(served: Served) -> LiteGroupRequests:
    (lite,) = [each for each in families_of(served.running.broker) if isinstance(each, LiteGroupRequests)]
    return lite


@pytest.mark.parametrize("messages", [0, -1])
async def test_a_pop_of_no_message_waits_for_none_and_hides_none_from_others(tmp_path: Path, messages: int) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        assert await control(served, change(ADD, "a")) == (0, None)
        lite, peer = requests_of(served), cast("Peer", object())
        plain = PopMessage("G", "T", -1, messages, 60_000, 20_000, 0).to_command()
        for answer in (lite.pops.pop(plain, peer), lite.pop(pop_of("c", messages), peer)):
            assert isinstance(answer, Command)
            assert answer.code == POLLING_TIMEOUT
        await sent(served, "a1")
        assert isinstance(lite.pop(pop_of("c", messages), peer), Command)
        assert bodies(await pop(served)) == ["a1"]


async def test_a_client_id_that_another_group_takes_meanwhile_gets_no_lite_topic_of_this_one(tmp_path: Path) -> None:
    names = " ".join(f"n{number}" for number in range(500))
    async with serving(tmp_path, **ON) as served:
        await made(served)
        served.running.broker.tables.groups.put({"groupName": "H", "attributes": {"lite.bind.topic": "U"}}, 0)
        lite, peer = requests_of(served), cast("Peer", object())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lite.control, LiteSubscriptionCtl((change(ADD, names),)).to_command(), peer)
            await trio.lowlevel.checkpoint()
            other = LiteSubscriptionCtl((change(ALL, group="H", topic="U"),))
            assert (await lite.control(other.to_command(), peer)).code == 0
        client = lite.clients.get("c")
        assert client is not None
        assert (client.group, client.topic, list(client.queues)) == ("H", "U", [])


async def test_two_clients_that_subscribe_at_once_exclude_each_other(tmp_path: Path) -> None:
    names = " ".join(f"n{number}" for number in range(500))
    async with serving(tmp_path, **ON) as served:
        await made(served, **{"lite.sub.model": "Exclusive"})
        lite, peer = requests_of(served), cast("Peer", SimpleNamespace(connection=SimpleNamespace(is_full=True)))
        async with trio.open_nursery() as nursery:
            for client in "cd":
                request = LiteSubscriptionCtl((change(ADD, names, client=client),)).to_command()
                nursery.start_soon(lite.control, request, peer)
        counts = {len(list(lite.clients.subscribers(f"%LMQ%$T${name}"))) for name in names.split()}
        assert counts == {1}


async def test_lite_topics_that_were_never_sent_fill_no_table_of_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        before = len(served.running.broker.tables.offsets)
        for start in (LiteStart("OFFSET", 5), FIRST):
            assert await control(served, LiteChange(ADD, "c", "G", "T", ("a", "b", "c"), start)) == (0, None)
            assert await control(served, change(REMOVE, "a b c")) == (0, None)
        assert len(served.running.broker.tables.offsets) == before


async def test_a_client_that_leaves_while_it_subscribes_leaves_nothing_behind(tmp_path: Path) -> None:
    names = " ".join(f"n{number}" for number in range(2000))
    async with serving(tmp_path, **ON) as served:
        await made(served)
        answers: list[tuple[int, str | None]] = []

        async def subscribe() -> None:
            answers.append(await control(served, change(ADD, names)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe)
            while not answers:
                assert await control(served, change(LEAVE)) == (0, None)
        assert await control(served, change(LEAVE)) == (0, None)
        lite = served.running.broker.deliveries.reviver.waits.lite
        assert (answers, len(lite), lite.subscriptions, lite._subscribers) == ([(0, None)], 0, 0, {})


async def test_a_lock_outlasts_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await sent(served, "a1")
        assert await control(served, change(ADD, "a")) == (0, None)
        popped = await pop(served)
    async with serving(tmp_path, **ON) as served:
        assert await control(served, change(ADD, "a")) == (0, None)
        assert (await pop(served)).code == POLLING_TIMEOUT
        assert (await served.ask(ack(popped))).code == 0
        assert committed(served) == 1


@pytest.mark.parametrize(
    ("start", "popped"),
    [
        (None, ["a3", "a4"]),
        (FIRST, ["a1", "a2", "a3", "a4"]),
        (LiteStart("POLICY", 2), []),
        (LiteStart("POLICY", 0), ["a3", "a4"]),
        (LiteStart("OFFSET", 3), ["a4"]),
        (LiteStart("OFFSET", 99), []),
        (LiteStart("OFFSET", -1), ["a1", "a2", "a3", "a4"]),
        (LiteStart("TAIL_N", 1), ["a2", "a3", "a4"]),
        (LiteStart("TAIL_N", 9), ["a1", "a2", "a3", "a4"]),
        (LiteStart("TIMESTAMP", 0), ["a3", "a4"]),
        (LiteStart("no such", 0), ["a3", "a4"]),
    ],
)
async def test_a_subscription_moves_the_offset_of_its_group(
    tmp_path: Path, start: LiteStart | None, popped: list[str]
) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await sent(served, "a1 a2 a3 a4")
        served.running.broker.tables.offsets.commit("G", "%LMQ%$T$a", 0, 2)
        assert await control(served, LiteChange(ADD, "c", "G", "T", ("a",), start)) == (0, None)
        assert bodies(await pop(served)) == popped


async def test_figures_show_subscriptions(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        served.running.broker.tables.groups.put(
            {"groupName": "W", "attributes": {"lite.bind.topic": "T", "lite.sub.wildcard": "true"}}, 0
        )
        assert await control(served, change(ADD, "a b"), change(ALL, client="w", group="W")) == (0, None)
        await sent(served, "a1")
        info = loads((await served.ask(GetLiteTopicInfo("T", "a").to_command())).body, "figures")
        assert info["subscriber"] == [{"clientId": "c", "group": "G"}, {"clientId": "*", "group": "W"}]
        before_ms = clock.now_ms()
        assert bodies(await pop(served)) == ["a1"]
        client = loads((await served.ask(GetLiteClientInfo("T", "G", "c", 1).to_command())).body, "figures")
        assert client.pop("lastAccessTime") >= before_ms
        assert client == {
            "clientId": "c",
            "group": "G",
            "parentTopic": "T",
            "lastConsumeTime": 0,
            "liteTopicCount": 2,
            "liteTopicSet": ["%LMQ%$T$a"],
        }
        numbers = BrokerLiteInfo.from_command(await served.ask(GetBrokerLiteInfo().to_command()))
        assert (numbers.subscriptions, numbers.ordered, numbers.clients_with_events) == (3, 1, 2)
        lite = served.running.broker.deliveries.reviver.waits.lite
        for each in lite.of_group("W"):
            each.ready.clear()  # as if a mark was lost
        assert (await pop(served, "w", consumer_group="W")).code == POLLING_TIMEOUT
        assert (await served.ask(TriggerLiteDispatch("W", "w").to_command())).code == 0
        assert bodies(await pop(served, "w", consumer_group="W")) == ["a1"]
