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
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer
from pyrmq_core.protocol.requests.pop.settle import AckMessage
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


def test_each_answer_is_that_of_apaches_broker(apache_5: ApacheCluster, tmp_path: Path) -> None:
    theirs = dict(conversation(partial(ask, next(iter(apache_5.brokers.values())).address)))
    with ours(tmp_path / "store", kill=False) as address:
        assert dict(conversation(partial(ask, address))) == theirs


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
        with boot_broker("5.4.0", cluster.nameserver.address, settings=places) as broker:
            (again,) = wait_for(partial(ask, broker.address), 1, invisible_ms=10_000)
            assert (again.body, again.tries) == (b"ours 1", 1)
            begin(partial(ask, broker.address), b"theirs")
            broker.terminate()
        with ours(directory, kill=False) as address:
            popped = wait_for(partial(ask, address), 2)
            assert sorted((each.body, each.tries) for each in popped) == [(b"ours 1", 2), (b"theirs 1", 1)]
            nothing = PopAnswer.from_command(ask(address, pop_message().to_command()))
            assert deliveries(nothing) == []


def begin(ask_broker: Ask, name: bytes) -> None:
    for number in range(2):
        ask_broker(message("T", b"%s %d" % (name, number)).to_command())
    first, _ = wait_for(ask_broker, 2, invisible_ms=4000)
    receipt = first.receipt
    acked = AckMessage("G", topic_of(receipt), receipt.queue_id, receipt.encode(), receipt.queue_offset)
    assert ask_broker(acked.to_command()).code == 0
