"""Transactions that run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from pyrmq_core import (
    Admin,
    Client,
    LocalTransactionState,
    Message,
    MessageExt,
    NoRoute,
    OffsetRange,
    Producer,
    PullConsumer,
    Transaction,
    decode,
)
from pyrmq_core.protocol.requests.broker.end_transaction import ResumeCheckHalfMessage
from tests.support.apache import ask
from tests.support.waiting import until

COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SECONDS = 60.0
NUMBERS = itertools.count(1)


class Ledger:
    """Answers each check by the message's body, and keeps the checks; UNKNOW for a body that it does not have.

    With `is_held` it answers nothing before `released` is set.
    """

    def __init__(self, states: Mapping[bytes, LocalTransactionState], *, is_held: bool = False) -> None:
        self.states = dict(states)
        self.arrived = 0
        self.checked: list[MessageExt] = []
        self.released = threading.Event()
        if not is_held:
            self.released.set()

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.arrived += 1
        self.released.wait(SECONDS)
        self.checked.append(message)
        return self.states.get(message.body, UNKNOW)

    def counts(self) -> Counter[bytes]:
        return Counter(message.body for message in list(self.checked))


def fresh(word: str) -> str:
    return f"{word}_{os.getpid()}_{next(NUMBERS)}"


async def made_topic(nameserver: str, queues: int = 2) -> str:
    topic = fresh("ledger")
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=queues)
    return topic


async def visible(consumer: PullConsumer, topic: str) -> list[MessageExt]:
    """Returns every message of a topic by reads that prove that no offset lacks its message; none without a route."""
    messages: list[MessageExt] = []
    try:
        queues = await consumer.message_queues(topic)
    except NoRoute:
        return []
    for queue, bound in (await consumer.offset_bounds(queues)).items():
        async with consumer.read(queue, bound.start, bound.end) as pulls:
            async for pull in pulls:
                messages += decode(pull, OffsetRange(pull.start, pull.next_offset))
    return messages


async def wait_visible(consumer: PullConsumer, topic: str, bodies: set[bytes]) -> list[MessageExt]:
    """Returns the messages of a topic as soon as these are among them."""
    with trio.fail_after(SECONDS):
        while True:
            messages = await visible(consumer, topic)
            if bodies <= {message.body for message in messages}:
                return messages
            await trio.sleep(0.05)


@asynccontextmanager
async def transacting(
    nameserver: str, ledger: Ledger, group: str | None = None
) -> AsyncIterator[tuple[Producer, PullConsumer]]:
    """Yields a producer in transactions and a consumer, which share a client."""
    async with (
        Client(nameserver=nameserver) as client,
        Producer(group or fresh("ledgers"), client=client, transaction_listener=ledger, send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=15) as consumer,
    ):
        yield producer, consumer


async def begin(producer: Producer, topic: str, *bodies: bytes) -> dict[bytes, Transaction]:
    """Begins a transaction for each body, when the brokers know the producer: they may check at once."""
    await introduce(producer, topic)
    return {body: await producer.begin_transaction(Message(topic, body, tags="t", keys="k")) for body in bodies}


async def introduce(producer: Producer, topic: str) -> None:
    session = producer._session
    for queue in await producer.message_queues(topic):
        await session.heartbeats.send_now(await session.master_address(queue, timeout=15), timeout=15)


async def every_end_is_honoured(nameserver: str, *, most_checks: int) -> None:
    """Ends of all kinds, by the producer or at a check; one without an end is checked so often, and then resumed."""
    topic = await made_topic(nameserver)
    states = {b"committed": COMMIT, b"rolled back": ROLLBACK, b"found": COMMIT, b"missing": ROLLBACK}
    ledger = Ledger(states, is_held=True)
    async with transacting(nameserver, ledger) as (producer, consumer):
        begun = await begin(producer, topic, b"committed", b"rolled back", b"found", b"missing", b"silent")
        assert await visible(consumer, topic) == []
        await producer.end_transaction(begun[b"committed"], COMMIT)
        await producer.end_transaction(begun[b"rolled back"], ROLLBACK)
        await producer.end_transaction(begun[b"found"], UNKNOW)
        first = await wait_visible(consumer, topic, {b"committed"})
        assert [message.body for message in first] == [b"committed"]
        ledger.released.set()
        messages = await wait_visible(consumer, topic, {b"committed", b"found"})
        discarded = await wait_visible(consumer, DISCARDED_TOPIC, {b"silent"})
        await until(lambda: ledger.counts()[b"silent"] >= most_checks, SECONDS)
        counts = ledger.counts()
        assert counts[b"silent"] == most_checks
        assert min(counts[b"found"], counts[b"missing"]) >= 1
        assert {message.body for message in messages} == {b"committed", b"found"}
        for message in messages:
            is_as_sent(message, begun[message.body])
        assert first[0].prepared_transaction_offset == begun[b"committed"].commit_log_offset
        checks_show_the_message(ledger, begun[b"silent"])
        ledger.states[b"silent"] = COMMIT
        await trio.to_thread.run_sync(resume, begun[b"silent"], discarded)
        messages = await wait_visible(consumer, topic, {b"silent"})
        assert {message.body for message in messages} == {b"committed", b"found", b"silent"}


def is_as_sent(message: MessageExt, transaction: Transaction) -> None:
    assert message.msg_id == transaction.result.msg_id
    assert message.queue_id == transaction.result.message_queue.queue_id
    assert (message.topic, message.tags, message.keys) == (transaction.message.topic, "t", "k")
    assert message.sys_flag & 0xC == 8


def resume(transaction: Transaction, discarded: Iterable[MessageExt]) -> None:
    """Begins the checks of a discarded message anew, as Java's admin client does."""
    (kept,) = [message for message in discarded if message.msg_id == transaction.result.msg_id]
    request = ResumeCheckHalfMessage(kept.offset_msg_id, transaction.message.topic)
    answer = ask(transaction.broker_address, request.to_command())
    assert answer.code == 0, answer.remark


def checks_show_the_message(ledger: Ledger, transaction: Transaction) -> None:
    checks = [message for message in ledger.checked if message.body == transaction.message.body]
    for number, message in enumerate(checks, 1):
        assert (message.topic, message.keys) == (transaction.message.topic, "k")
        assert message.queue_id == transaction.result.message_queue.queue_id
        assert message.msg_id == transaction.result.msg_id
        assert message.properties["TRANSACTION_CHECK_TIMES"] == str(number)


async def another_producer_inherits(nameserver: str) -> None:
    """Leaves a half message whose producer is gone: another of its group answers the check."""
    topic, group, heir = await made_topic(nameserver), fresh("heirs"), Ledger({b"inherited": COMMIT})
    async with transacting(nameserver, heir, group) as (left, consumer):
        await introduce(left, topic)
        async with transacting(nameserver, Ledger({}), group) as (sender, _):
            begun = await begin(sender, topic, b"inherited")
        await wait_visible(consumer, topic, {b"inherited"})
    (check,) = [message for message in heir.checked if message.body == b"inherited"][:1]
    assert check.msg_id == begun[b"inherited"].result.msg_id


async def halves_are_left(nameserver: str, topic: str, group: str, *bodies: bytes) -> None:
    """Leaves half messages without an end, whose producer is gone."""
    async with transacting(nameserver, Ledger({}), group) as (producer, _):
        await begin(producer, topic, *bodies)


async def checks_end(nameserver: str, topic: str, group: str, states: Mapping[bytes, LocalTransactionState]) -> None:
    """Answers the checks of these half messages, until all have their answer and the committed ones are visible."""
    ledger = Ledger(states)
    async with transacting(nameserver, ledger, group) as (producer, consumer):
        await begin(producer, topic, b"heartbeat")
        await until(lambda: states.keys() <= ledger.counts().keys(), SECONDS)
        await wait_visible(consumer, topic, {body for body, state in states.items() if state is COMMIT})
