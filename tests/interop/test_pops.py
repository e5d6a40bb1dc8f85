"""Pops: the same requests have the same answers on our broker and on Apache's. Each goes on with the other's store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer, read_order_counts
from pyrmq_core.protocol.requests.pop.settle import AckMessage, BatchAckMessage, ack_entries
from tests.interop.test_store_files import ours
from tests.servers.broker.pop.popping import Delivery, deliveries, pop_message, topic_of
from tests.servers.broker.serving import message
from tests.support.apache import ApacheCluster, ask, boot_broker, boot_cluster
from tests.support.maven import ApacheUnavailable

Ask = Callable[[Command], Command]
# Times of the broker's clock, and the number of the pop: other tests pop there, too.
OWN = ("popTime", "reviveQid")
DEADLINE_SECONDS = 60.0


def shown(answer: Command) -> tuple[int, Mapping[str, str], str]:
    fields = {name: text for name, text in answer.ext.items() if name not in OWN}
    return answer.code, fields, (answer.remark or "").partition("\n")[0].partition(" consumer:[")[0]


def wait_for(ask_broker: Ask, number: int, **how: Any) -> list[Delivery]:
    popped: list[Delivery] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(popped) < number:
        assert time.monotonic() < deadline
        answer = ask_broker(pop_message(poll_time_ms=500, **how).to_command())
        popped += deliveries(PopAnswer.from_command(answer))
    return popped


def conversation(ask_broker: Ask) -> Iterator[tuple[str, Any]]:
    """Yields the answers of a broker, step by step. A topic of one queue has one order."""
    ask_broker(UpdateTopic.of(TopicConfig("T", 1, 1, 6)).to_command())
    for number in range(7):
        ask_broker(message("T", b"%d" % number, "TAGS\x01a\x02").to_command())
    first = ask_broker(pop_message(messages=3, invisible_ms=3000).to_command())
    yield "pop", shown(first)
    lowest, middle, highest = deliveries(PopAnswer.from_command(first))
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    acked = {**fields, "offset": "0", "extraInfo": lowest.receipt.encode()}
    yield "ack", shown(ask_broker(Command(200051, acked)))
    changed = {**fields, "offset": "1", "extraInfo": middle.receipt.encode(), "invisibleTime": "60000"}
    yield "change", shown(ask_broker(Command(200053, changed)))[:2]
    for name, wrong in {
        "no topic": {"topic": "nope"},
        "no queue": {"queueId": "9"},
        "no such offset": {"offset": "99"},
    }.items():
        yield f"ack, {name}", shown(ask_broker(Command(200051, {**acked, **wrong})))
        yield f"change, {name}", shown(ask_broker(Command(200053, {**changed, **wrong})))[0]
    yield "no acknowledgement", shown(ask_broker(Command(200151, body=b'{"brokerName":"broker-a","acks":[]}')))[0]
    refused: dict[str, dict[str, Any]] = {
        "no topic": {"topic": "nope"},
        "no queue": {"queue_id": 9},
        "many": {"messages": 33},
    }
    for name, how in refused.items():
        code, _, remark = shown(ask_broker(pop_message(**how).to_command()))
        yield f"pop, {name}", (code, remark)
    yield "another tag", shown(ask_broker(pop_message(consumer_group="H", expression="b").to_command()))
    yield "none", shown(ask_broker(pop_message(messages=0).to_command()))
    yield "the rest", shown(ask_broker(pop_message().to_command()))
    yield "nothing", shown(ask_broker(pop_message().to_command()))
    (again,) = wait_for(ask_broker, 1)
    assert again.body == highest.body
    yield "again", (again.tries, again.record.topic, again.receipt.mark, again.receipt.queue_id)


def ordered_conversation(ask_broker: Ask) -> Iterator[tuple[str, Any]]:
    """Yields the answers to ordered pops of a topic of one queue, and to what ends them."""
    ask_broker(UpdateTopic.of(TopicConfig("Ordered", 1, 1, 6)).to_command())
    for number in range(7):
        ask_broker(message("Ordered", b"%d" % number, "TAGS\x01a\x02").to_command())
    steps: list[tuple[str, Any]] = []

    def take(name: str, **how: Any) -> list[Delivery]:
        answer = ask_broker(pop_message("Ordered", order=True, **how).to_command())
        steps.append((name, shown(answer)))
        return deliveries(PopAnswer.from_command(answer))

    def settle(name: str, code: int, popped: Delivery, **more: str) -> None:
        receipt = popped.receipt
        fields = {"consumerGroup": "G", "topic": "Ordered", "queueId": "0", "offset": str(receipt.queue_offset)}
        answer = ask_broker(Command(code, {**fields, "extraInfo": receipt.encode(), **more}))
        remark = (answer.remark or "").partition(", old:")[0].partition(", commit:")[0]
        steps.append((name, (answer.code, remark if answer.code else "", answer.ext.get("reviveQid"))))

    take("three", messages=3, attempt_id="one")
    take("another attempt", attempt_id="two")
    waits = ask_broker(AwaitMessage("G", "Ordered", -1, 0, 0, order=True).to_command())
    steps.append(("notification", waits.ext["hasMsg"]))
    first = take("the same attempt", messages=2, attempt_id="one")
    settle("ack the second", 200051, first[1])
    take("still locked")
    settle("ack the first", 200051, first[0])
    settle("ack it again", 200051, first[0])
    second = take("three more", messages=3)
    settle("change an acknowledged one", 200053, first[0], invisibleTime="1000")
    for number, popped in enumerate(second):
        settle(f"change {number}", 200053, popped, invisibleTime="1")
    settle("ack beyond the queue", 200051, second[0], offset="99")
    settle("ack of no message of the pop", 200051, second[0], offset="6")
    settle("ack of an earlier pop", 200051, first[1], offset="2")
    time.sleep(0.01)
    third = take("all again", invisible_ms=60_000)
    batch = BatchAckMessage("broker-a", ack_entries("Ordered", "G", [each.receipt for each in third[:-1]]))
    steps.append(("batch", shown(ask_broker(batch.to_command()))[0]))
    settle("change the last", 200053, third[-1], invisibleTime="1")
    time.sleep(0.01)
    take("the last again")
    take("another group", consumer_group="H", expression="b")
    yield from steps


def test_each_answer_is_that_of_apaches_broker(apache_5: ApacheCluster, tmp_path: Path) -> None:
    theirs = dict(conversation(partial(ask, next(iter(apache_5.brokers.values())).address)))
    ordered = dict(ordered_conversation(partial(ask, next(iter(apache_5.brokers.values())).address)))
    with ours(tmp_path / "store", kill=False) as address:
        assert dict(conversation(partial(ask, address))) == theirs
        assert dict(ordered_conversation(partial(ask, address))) == ordered


def test_each_broker_goes_on_with_the_others_checkpoints(tmp_path: Path) -> None:
    """Each broker acknowledges one of two popped messages, and the other broker makes the other message visible."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster("5.4.0", ()))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ 5.4.0: {reason}")
        directory = cluster.home / "store"
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog")}
        with ours(directory, kill=False) as address:
            begin(partial(ask, address), b"ours")
            held = hold(partial(ask, address))
        with boot_broker("5.4.0", cluster.nameserver.address, settings=places) as broker:
            (again,) = wait_for(partial(ask, broker.address), 1, invisible_ms=10_000)
            assert (again.body, again.tries) == (b"ours 1", 1)
            begin(partial(ask, broker.address), b"theirs")
            held = go_on(partial(ask, broker.address), held, tries=1)
            broker.terminate()
        with ours(directory, kill=False) as address:
            go_on(partial(ask, address), held, tries=2)
            popped = wait_for(partial(ask, address), 2)
            assert sorted((each.body, each.tries) for each in popped) == [(b"ours 1", 2), (b"theirs 1", 1)]
            nothing = PopAnswer.from_command(ask(address, pop_message().to_command()))
            assert deliveries(nothing) == []


def take_ordered(ask_broker: Ask) -> PopAnswer:
    return PopAnswer.from_command(ask_broker(pop_message("Ordered", order=True, invisible_ms=600_000).to_command()))


def hold(ask_broker: Ask) -> list[Delivery]:
    """Locks a queue by a pop of four messages."""
    ask_broker(UpdateTopic.of(TopicConfig("Ordered", 1, 1, 6)).to_command())
    for number in range(4):
        ask_broker(message("Ordered", b"%d" % number).to_command())
    return deliveries(take_ordered(ask_broker))


def go_on(ask_broker: Ask, held: list[Delivery], tries: int) -> list[Delivery]:
    """Finds the lock that the other broker left, and acknowledges the first message by that broker's receipt."""
    assert deliveries(take_ordered(ask_broker)) == []
    receipt = held[0].receipt
    acked = AckMessage("G", "Ordered", 0, receipt.encode(), receipt.queue_offset)
    assert ask_broker(acked.to_command()).code == 0
    for each in held[1:]:
        fields = {"consumerGroup": "G", "topic": "Ordered", "queueId": "0", "offset": str(each.receipt.queue_offset)}
        changed = Command(200053, {**fields, "extraInfo": each.receipt.encode(), "invisibleTime": "1"})
        assert ask_broker(changed).code == 0
    time.sleep(0.01)
    answer = take_ordered(ask_broker)
    again = deliveries(answer)
    assert [each.body for each in again] == [each.body for each in held[1:]]
    assert set(read_order_counts(answer.order_count_info or "").values()) == {tries}
    return again


def begin(ask_broker: Ask, name: bytes) -> None:
    for number in range(2):
        ask_broker(message("T", b"%s %d" % (name, number)).to_command())
    first, _ = wait_for(ask_broker, 2, invisible_ms=4000)
    receipt = first.receipt
    acked = AckMessage("G", topic_of(receipt), receipt.queue_id, receipt.encode(), receipt.queue_offset)
    assert ask_broker(acked.to_command()).code == 0
