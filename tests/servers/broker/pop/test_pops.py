"""Pops over sockets: what they take, what ends them, what comes again, and what is refused."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.pop.pop_message import POLLING_FULL, POLLING_TIMEOUT, PopAnswer
from pyrmq_core.protocol.requests.pop.receipt import Receipt
from pyrmq_core.protocol.requests.pop.settle import BatchAckMessage, ack_entries
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.pop import reviver
from pyrmq_core.servers.broker.processors.pops.held import HeldRequest, waiter_of
from pyrmq_core.servers.broker.processors.pops.pop_message import PopRequests
from pyrmq_core.servers.broker.processors.pulls.pull_filters import PullFilter
from pyrmq_core.servers.broker.processors.table import families_of
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from tests.servers.broker.pop.popping import ack, ack_all, change, deliveries, pop, pop_message, pop_some
from tests.servers.broker.serving import Served, serving, until


async def asked(served: Served, topic: str = "T", **how: Any) -> Command:
    return await served.ask(pop_message(topic, **how).to_command())


async def test_a_pop_takes_messages_of_all_queues_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for number in range(8):
            await served.send("T", b"%d" % number, queue_id=number % 4)
        first = PopAnswer.from_command(await asked(served, messages=5))
        assert (first.code, first.remark, first.rest_num, first.revive_queue_id) == (0, "FOUND", 3, 0)
        second = PopAnswer.from_command(await asked(served))
        assert (second.rest_num, second.revive_queue_id) == (0, 1)
        bodies = [popped.body for answer in (first, second) for popped in deliveries(answer)]
        assert sorted(bodies) == [b"%d" % number for number in range(8)]
        nothing = await asked(served)
        assert (nothing.code, nothing.remark) == (POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        offsets = served.running.broker.tables.offsets
        assert [offsets.committed("G", "T", queue_id) for queue_id in range(4)] == [2, 2, 2, 2]


async def test_only_messages_without_an_acknowledgement_come_again_with_one_try_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for number in range(4):
            await served.send("T", b"%d" % number, properties="TAGS\x01a\x02KEYS\x01k\x02")
        began_ms = clock.now_ms()
        popped = await pop(served, invisible_ms=2500)
        assert (await ack(served, popped[1].receipt)).code == ResponseCode.SUCCESS
        assert (await ack_all(served, [popped[0].receipt, popped[3].receipt])).code == ResponseCode.SUCCESS
        (again,) = await pop_some(served, invisible_ms=1000)
        assert clock.now_ms() - began_ms >= 2500
        assert (again.body, again.tries, again.receipt.mark) == (b"2", 1, "1")
        assert again.record.topic == "T"
        properties = decode_properties(again.record.properties)
        assert properties["1ST_POP_TIME"] == str(popped[2].receipt.pop_time_ms)
        assert (properties["ORIGIN_GROUP"], properties["TAGS"], properties["KEYS"]) == ("G", "a", "k")
        assert Receipt.decode(properties["POP_CK"]) == again.receipt
        (third,) = await pop_some(served)
        assert (third.body, third.tries) == (b"2", 2)
        await ack(served, third.receipt)
        assert await pop(served) == []


async def test_a_changed_time_counts_from_the_change(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"longer")
        await served.send("T", b"given back")
        (longer,) = await pop(served, messages=1, invisible_ms=3000)
        extended = await change(served, longer.receipt, 60_000)
        assert extended.start_offset == longer.receipt.queue_offset
        assert extended.invisible_ms == 60_000
        assert extended.revive_queue_id == longer.receipt.revive_queue_id
        (back,) = await pop(served)
        await change(served, back.receipt, 0)
        (again,) = await pop_some(served)
        assert (again.body, again.tries) == (b"given back", 1)
        assert clock.now_ms() < back.receipt.pop_time_ms + back.receipt.invisible_ms
        # The first time of the longer one is over before that of this one, which begins later.
        await served.send("T", b"later")
        await pop(served, invisible_ms=3500)
        (later,) = await pop_some(served)
        assert later.body == b"later"


async def test_after_the_groups_tries_a_message_is_a_dead_letter(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.running.broker.tables.groups.put({"groupName": "G", "retryMaxTimes": 1}, 0)
        await served.send("T", b"bad")
        for tries in range(2):
            (popped,) = await pop_some(served, invisible_ms=0)
            assert popped.tries == tries
        reader = served.running.broker.store.reader
        await until(lambda: reader.bounds(("%DLQ%G", 0))[1] == 1)
        (dead,) = iterate_records((await served.pull("%DLQ%G")).records)
        assert dead.body == b"bad"
        assert decode_properties(dead.properties)["DLQ_ORIGIN_TOPIC"] == "T"
        assert await pop(served) == []


@pytest.mark.parametrize("form", ["false", "true"])
async def test_retry_topics_of_both_forms_are_read(tmp_path: Path, form: str) -> None:
    async with serving(tmp_path, enableRetryTopicV2=form) as served:
        await served.send("T", b"x")
        await pop(served, invisible_ms=0)
        (again,) = await pop_some(served)
        assert again.receipt.mark == {"false": "1", "true": "2"}[form]
        await ack(served, again.receipt)
        name = {"false": "%RETRY%G_T", "true": "%RETRY%G+T"}[form]
        assert served.running.broker.tables.offsets.committed("G", name, 0) == 1
    async with serving(tmp_path, enableRetryTopicV2="false") as served:
        assert name in served.running.broker.tables.topics


async def test_a_kill_changes_neither_offsets_nor_what_is_acknowledged(tmp_path: Path) -> None:
    async with serving(tmp_path, flushConsumerOffsetInterval="20") as served:
        for number in range(6):
            await served.send("T", b"%d" % number)
        popped = await pop(served, messages=2, invisible_ms=4000)
        offsets = served.running.broker.tables.offsets
        await until(lambda: b'"savedMs"' in read(tmp_path) and not offsets.is_changed)
        served.running.broker.tables.offsets.unsaved = lambda: None  # type: ignore[method-assign]
        popped += await pop(served, messages=2, invisible_ms=4000)
        assert (await ack(served, popped[0].receipt)).code == ResponseCode.SUCCESS
        assert (await ack(served, popped[3].receipt)).code == ResponseCode.SUCCESS
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path) as served:
        again: list[bytes] = []
        while len(again) < 4:
            again += [each.body for each in await pop_some(served)]
        assert sorted(again) == [b"1", b"2", b"4", b"5"]
        assert await pop(served) == []


async def test_a_kill_before_the_first_write_of_offsets_changes_nothing_either(tmp_path: Path) -> None:
    async with serving(tmp_path, flushConsumerOffsetInterval="1000000") as served:
        await served.send("T", b"x")
        (popped,) = await pop(served)
        await ack(served, popped.receipt)
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path) as served:
        assert await pop(served) == []


def read(store: Path) -> bytes:
    path = store / "config" / "consumerOffset.json"
    return path.read_bytes() if path.exists() else b""


async def test_what_is_visible_again_before_a_kill_is_so_once(tmp_path: Path) -> None:
    async with serving(tmp_path, flushConsumerOffsetInterval="1000000") as served:
        await served.send("T", b"x")
        await pop(served, invisible_ms=0)
        assert len(await pop_some(served)) == 1
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path) as served:
        broker = served.running.broker
        queues, reader = broker.deliveries.reviver.queues, broker.store.reader
        end = reader.bounds((broker.settings.config.revive_topic, 0))[1]
        await until(lambda: bool(queues) and queues[0].done == end)
        assert reader.bounds(("%RETRY%G_T", 0)) == (0, 1)


async def test_held_pops_are_woken_one_for_each_message_in_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"first")
        await pop(served)
        order: list[str] = []

        async def wait(name: str) -> None:
            (popped,) = await pop(served, messages=1, poll_time_ms=20_000)
            order.append(name + popped.body.decode())

        waits = served.running.broker.deliveries.reviver.waits
        async with trio.open_nursery() as nursery:
            for number, name in enumerate("abc", 1):
                nursery.start_soon(wait, name)
                await until(lambda: waits.held.count == number)  # noqa: B023 - awaited in the loop
            for number, body in enumerate((b"1", b"2", b"3"), 1):
                await served.send("T", body)
                await until(lambda: len(order) == number)  # noqa: B023 - awaited in the loop
        assert order == ["a1", "b2", "c3"]
        assert waits.held.count == 0
        assert not waits._waiting


async def test_a_burst_wakes_as_many_pops_as_it_fills(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"first")
        await pop(served)
        popped: list[bytes] = []

        async def wait() -> None:
            popped.extend([each.body for each in await pop(served, messages=1, poll_time_ms=20_000)])

        waits = served.running.broker.deliveries.reviver.waits
        # Sooner than the end of the polls, where each would look once more.
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(wait)
                await until(lambda: waits.held.count == 5)
                pieces = [piece(0, b"%d" % number, b"") for number in range(5)]
                host = served.running.broker.identity.store_host
                served.running.broker.store.put(Append("T", 0, pieces, 0, host, host), clock.now_ms())
        assert sorted(popped) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_pop_whose_client_is_gone_after_its_wake_wakes_the_next(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"first")
        await pop(served)
        broker = served.running.broker
        (pops,) = [family for family in families_of(broker) if isinstance(family, PopRequests)]
        peer, woken = cast("Peer", object()), list[LateAnswer]()
        header = pop_message("T", poll_time_ms=20_000)
        attempt = partial(pops.take_again, header, PullFilter(), peer)
        first, second = (HeldRequest(pops.reviver.waits, waiter_of(header), attempt, peer, 1, 20_000) for _ in range(2))
        first.wait(woken.append)
        second.wait(woken.append)
        await served.send("T", b"x")
        assert woken == [first]
        first.drop()
        assert woken == [first, second]
        second.drop()
        assert not pops.reviver.waits._waiting


@pytest.mark.parametrize(
    ("expression", "expression_type", "bodies"),
    [
        ("a", "TAG", [b"0", b"2"]),
        ("b || c", None, [b"1"]),
        ("*", None, [b"0", b"1", b"2", b"3"]),
        ("n > 1", "SQL92", [b"2", b"3"]),
    ],
)
async def test_a_filter_passes_over_other_messages_for_good(
    tmp_path: Path, expression: str, expression_type: str | None, bodies: list[bytes]
) -> None:
    async with serving(tmp_path, enablePropertyFilter="true") as served:
        for number, tag in enumerate("abad"):
            await served.send("T", b"%d" % number, properties=f"TAGS\x01{tag}\x02n\x01{number}\x02")
        how: dict[str, Any] = {"expression": expression, "expression_type": expression_type}
        assert [popped.body for popped in await pop(served, **how)] == bodies
        assert await pop(served) == []


async def test_a_held_pop_goes_on_past_messages_that_its_filter_leaves_out(tmp_path: Path) -> None:
    async with serving(tmp_path, enablePropertyFilter="true") as served:
        for _ in range(900):
            await served.send("T", b"no", properties="n\x011\x02")
        await served.send("T", b"yes", properties="n\x012\x02")
        (popped,) = await pop(served, expression="n > 1", expression_type="SQL92", poll_time_ms=10_000)
        assert popped.body == b"yes"


async def test_the_first_place_of_a_new_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"old")
        assert [popped.body for popped in await pop(served, init_mode=1)] == [b"old"]  # a young queue begins at 0
        assert [popped.body for popped in await pop(served, consumer_group="H", init_mode=0)] == [b"old"]


@pytest.mark.parametrize("factor", [None, "0"])
async def test_the_highest_queue_of_a_priority_topic_comes_first(tmp_path: Path, factor: str | None) -> None:
    async with serving(tmp_path) as served:
        tables = served.running.broker.tables
        tables.topics.put(TopicConfig("T", 4, 4, 6, attributes={"message.type": "PRIORITY"}), 0)
        for queue_id in range(4):
            await served.send("T", b"%d" % queue_id, queue_id=queue_id)
        orders = set()
        for number in range(12):
            group = f"g{number}"
            tables.groups.put({"groupName": group, "attributes": {"priority.factor": factor} if factor else {}}, 0)
            orders.add(b"".join([each.body for each in await pop(served, consumer_group=group)]))
        assert (orders == {b"3210"}) is (factor is None)


async def test_a_reset_is_followed_by_the_next_pop(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for number in range(3):
            await served.send("T", b"%d" % number)
        assert len(await pop(served)) == 3
        served.running.broker.tables.offsets.reset("G", "T", 0, 1)
        assert [popped.body for popped in await pop(served)] == [b"1", b"2"]
        assert await pop(served) == []


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no topic": ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist"),
    "no such queue": ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER, "queueId[9] is illegal"),
    "too many": ({"messages": 33}, ResponseCode.INVALID_PARAMETER, "greater than 32"),
    "no name": ({"consumer_group": "../x"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
    "negative": ({"invisible_ms": -1}, ResponseCode.INVALID_PARAMETER, "invisibleTime[-1] is illegal"),
    "beyond the timers": ({"invisible_ms": 259_200_001}, ResponseCode.INVALID_PARAMETER, "0 to 259200000 ms"),
    "a long attempt": ({"attempt_id": "x" * 256}, ResponseCode.INVALID_PARAMETER, "attemptId is longer"),
    "no expression": (
        {"expression": "a >", "expression_type": "SQL92"},
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "",
    ),
    "a long retry topic": (
        {"consumer_group": "g" * 250},
        ResponseCode.INVALID_PARAMETER,
        "longer than topic max length",
    ),
}


@pytest.mark.parametrize(("how", "code", "text"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_pop_says_why(tmp_path: Path, how: dict[str, Any], code: int, text: str) -> None:
    async with serving(tmp_path, enablePropertyFilter="true") as served:
        await served.send("T", b"x")
        answer = await asked(served, **how)
        assert answer.code == code
        assert text in (answer.remark or "")
        assert len(await pop(served)) == 1


async def test_late_pops_switched_off_timers_and_full_tables_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "a", maxHeldPulls="0") as served:
        await served.send("T", b"x")
        answer = await served.ask(replace(pop_message("T"), born_time_ms=1).to_command())
        assert (answer.code, "timeout too much" in (answer.remark or "")) == (POLLING_TIMEOUT, True)
        await pop(served)
        assert (await asked(served, poll_time_ms=5000)).code == POLLING_FULL
        groups = served.running.broker.tables.groups
        groups.put({"groupName": "G", "consumeEnable": False}, 0)
        assert (await asked(served)).code == ResponseCode.NO_PERMISSION
    async with serving(tmp_path / "b", timerWheelEnable="false") as served:
        await served.send("T", b"x")
        answer = await asked(served)
        assert (answer.code, "timerWheelEnable is false" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("0 1 2", "words"),
        ("0 1 60000 8 0 broker-a 0 0", "queue 8 of the revive log"),
        ("0 1 60000 -1 0 broker-a 0 0", "queue -1 of the revive log"),
        ("0 1 60000 0 0 broker-b 0 0", "broker 'broker-b'"),
        ("0 1 9000000000000000000 0 0 broker-a 0 0", "too far ahead"),
        ("x" * 100_000, "words"),
    ],
)
async def test_an_acknowledgement_that_cannot_count_is_refused(tmp_path: Path, changed: str, text: str) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x")
        await pop(served)
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "offset": "0", "invisibleTime": "1000"}
            answer = await served.ask(Command(code, {**fields, "extraInfo": changed}))
            assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
            assert text in (answer.remark or "")


@pytest.mark.parametrize("changed", [{"topic": "T\n"}, {"consumer_group": "G" * 300}, {"mark": "3"}])
async def test_a_batch_with_an_acknowledgement_that_cannot_count_writes_none(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x")
        (popped,) = await pop(served)
        (row,) = ack_entries("T", "G", [popped.receipt])
        stored = served.running.broker.store.end
        answer = await served.ask(BatchAckMessage("broker-a", (row, replace(row, **changed))).to_command())
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert served.running.broker.store.end == stored


async def test_no_pop_gets_a_message_while_too_many_wait_for_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served:
        await served.send("T", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(reviver, "MOST_BEHIND", -1)
            assert [await pop(served) for _ in range(3)] == [[], [], []]
        assert [delivery.body for delivery in await pop(served)] == [b"x"]
    lines = [record.getMessage() for record in caplog.records if "pops get no message" in record.getMessage()]
    assert len(lines) == 1


async def test_nothing_is_sent_to_the_revive_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answer = await served.send("rmq_sys_REVIVE_LOG_DefaultCluster", b"{}", "TAGS\x01ck\x02")
        assert answer.code == ResponseCode.NO_PERMISSION
