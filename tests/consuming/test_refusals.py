"""Each kind of consumer hears each refusal: by a warning and a problem, or by an error.

Every row names the topic, where the refusal comes from, and what to do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Client,
    ConsumeFromWhere,
    LitePullConsumer,
    MessageExt,
    MessageModel,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    RocketMQError,
    aio,
    blocking,
)
from pyrmq_core.model import Permission
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from tests.consuming.test_silence import Lines, behave, jumping_clock, lines, stage
from tests.support.scripted import refuse
from tests.support.stage import Stage

__all__ = ["jumping_clock", "lines", "stage"]

Code = RequestCode
FIRST = ConsumeFromWhere.FIRST_OFFSET
QUEUE = MessageQueue("orders", "broker-a", 0)


# --- The refusals: what each changes at the servers, and the words by which it is heard.


def write_only(stage: Stage) -> None:
    stage.topic("orders", queues=1, perm=Permission.WRITE)


def answering(code: int, words: str, *requests: int) -> Callable[[Stage], None]:
    def change(stage: Stage) -> None:
        for request in requests:
            stage.brokers["broker-a"].always(request, refuse(code, words))

    return change


def without_route(stage: Stage) -> None:
    del stage.table.routes["orders"]


def deleted(stage: Stage) -> None:
    """Leaves the consumer the route of a topic that its broker has no longer."""
    answering(ResponseCode.TOPIC_NOT_EXIST, "topic[orders] not exist, apply first please!", *PULLS)(stage)


def others_subscribe_otherwise(stage: Stage) -> None:
    body = json.dumps(
        {
            "connectionSet": [],
            "subscriptionTable": {"orders": {"topic": "orders", "subString": "sent", "tagsSet": ["sent"]}},
        }
    ).encode()
    stage.brokers["broker-a"].always(
        Code.GET_CONSUMER_CONNECTION_LIST, lambda request, peer: Command(ResponseCode.SUCCESS, {}, body)
    )


PULLS = (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
SIGNED = (*PULLS, Code.HEART_BEAT, Code.GET_CONSUMER_LIST_BY_GROUP, Code.QUERY_CONSUMER_OFFSET, Code.LOCK_BATCH_MQ)
SIGNATURE = "AuthenticationException: check signature failed."
PERMISSION = "check the topic's permission"
REFUSALS = {
    "write only": (write_only, ("READ permission", "broker-a (127.0.0.1:", "pyrmq topic perm orders 6")),
    "no right": (
        answering(ResponseCode.NO_PERMISSION, "User:x has no permission", *PULLS),
        ("has no permission", "127.0.0.1:", "orders", PERMISSION),
    ),
    "a wrong secret": (
        answering(ResponseCode.NO_PERMISSION, SIGNATURE, *SIGNED),
        (SIGNATURE, "127.0.0.1:", PERMISSION),
    ),
    "a group that is refused": (
        answering(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [billing] does not exist", *PULLS),
        ("subscription group [billing]", "127.0.0.1:", "orders", "create the group"),
    ),
    "no topic": (without_route, ("No route info of this topic: orders", "create")),
    "a deleted topic": (deleted, ("topic[orders] not exist", "127.0.0.1:", "create")),
    "a filter": (
        answering(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed", *PULLS),
        ("parse the consumer's subscription failed", "127.0.0.1:", "orders", "correct the expression"),
    ),
    "other subscriptions": (others_subscribe_otherwise, ("different subscriptions to orders", "127.0.0.1:", "equal")),
    "a busy broker": (
        answering(ResponseCode.SYSTEM_BUSY, "[PCBUSY_CLEAN_QUEUE]broker busy", *PULLS),
        ("broker busy", "127.0.0.1:", "orders", "retry later"),
    ),
}


# --- The consumers.


async def handle(messages: Sequence[MessageExt]) -> None:
    """Consumes them."""


@asynccontextmanager
async def pushing(client: Client, *, orderly: bool = False, model: MessageModel) -> AsyncIterator[PushConsumer]:
    async with (
        PushConsumer("billing", client=client, consume_from_where=FIRST, message_model=model) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("orders", tags="paid")

        async def run() -> None:
            await consumer.run(handle, orderly=orderly)

        nursery.start_soon(run)
        yield consumer
        with trio.CancelScope(shield=True):
            await consumer.stop(0)


@asynccontextmanager
async def polling(client: Client) -> AsyncIterator[LitePullConsumer]:
    async with LitePullConsumer("billing", client=client, consume_from_where=FIRST) as consumer:
        await consumer.subscribe("orders", tags="paid")
        yield consumer


CONSUMERS: dict[str, Callable[[Client], object]] = {
    "push": lambda client: pushing(client, model=MessageModel.CLUSTERING),
    "orderly": lambda client: pushing(client, orderly=True, model=MessageModel.CLUSTERING),
    "broadcasting": lambda client: pushing(client, model=MessageModel.BROADCASTING),
    "lite pull": polling,
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("kind", CONSUMERS)
async def test_a_member_hears_each_refusal(
    stage: Stage, lines: Lines, jumping_clock: MockClock, kind: str, refusal: str
) -> None:
    change, words = REFUSALS[refusal]
    async with Client(nameserver=stage.nameserver.address) as client:
        behave(stage, client)
        change(stage)
        async with CONSUMERS[kind](client) as consumer:  # type: ignore[attr-defined]
            await lines.wait(logging.WARNING, *words)
            while refusal != "other subscriptions" and not any(  # noqa: ASYNC110 - the clock jumps
                words[0] in str(problem) for problem in consumer.problems
            ):
                await trio.sleep(1)


@pytest.mark.parametrize("refusal", [name for name in REFUSALS if name != "other subscriptions"])
async def test_a_reader_of_its_own_hears_each_refusal(stage: Stage, jumping_clock: MockClock, refusal: str) -> None:
    """A pull consumer is no member of its group: it has no subscription to differ."""
    change, words = REFUSALS[refusal]
    change(stage)
    async with PullConsumer("billing", nameserver=stage.nameserver.address) as consumer:

        async def read() -> None:
            for queue in await consumer.message_queues("orders"):
                await consumer.pull(queue, 0, tags="paid")

        with pytest.raises(RocketMQError) as raised:
            await read()
    assert all(word in str(raised.value) for word in ("orders", *words)), str(raised.value)


# --- The other faces, whose members run on the library's loop.


class Heard(logging.Handler):
    """Waits for a line of the consumers, from any thread."""

    def __init__(self, *words: str) -> None:
        super().__init__(logging.WARNING)
        self._words = words
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if all(word in record.getMessage() for word in self._words):
            self.event.set()


@pytest.fixture
def unreadable() -> Iterator[str]:
    with blocking.EmbeddedCluster() as cluster, blocking.Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders", queues=1, perm=Permission.WRITE)
        yield cluster.nameserver


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, logger = (
        Heard("READ permission", "127.0.0.1:", "pyrmq topic perm orders 6"),
        logging.getLogger("pyrmq_core"),
    )
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize("kind", ["push", "orderly", "broadcasting", "lite pull"])
def test_a_blocking_member_hears_it(unreadable: str, heard: Heard, kind: str) -> None:
    model = MessageModel.BROADCASTING if kind == "broadcasting" else MessageModel.CLUSTERING
    if kind == "lite pull":
        with blocking.LitePullConsumer("billing", nameserver=unreadable) as polled:
            polled.subscribe("orders")
            assert heard.event.wait(120)
        return
    with blocking.PushConsumer("billing", nameserver=unreadable, message_model=model) as consumer:
        consumer.subscribe("orders")
        running = threading.Thread(target=lambda: consumer.run(lambda messages: None, orderly=kind == "orderly"))
        running.start()
        assert heard.event.wait(120)
        consumer.stop()
        running.join()


@pytest.mark.parametrize("kind", ["push", "orderly", "broadcasting", "lite pull"])
def test_a_member_under_asyncio_hears_it(unreadable: str, heard: Heard, kind: str) -> None:
    model = MessageModel.BROADCASTING if kind == "broadcasting" else MessageModel.CLUSTERING

    async def hear() -> bool:
        return await asyncio.to_thread(heard.event.wait, 120)

    async def consume() -> None:
        if kind == "lite pull":
            async with aio.LitePullConsumer("billing", nameserver=unreadable) as polled:
                await polled.subscribe("orders")
                assert await hear()
            return
        async with aio.PushConsumer("billing", nameserver=unreadable, message_model=model) as consumer:
            await consumer.subscribe("orders")
            running = asyncio.create_task(consumer.run(handle, orderly=kind == "orderly"))
            assert await hear()
            await consumer.stop()
            await running

    asyncio.run(consume())


def test_readers_of_the_other_faces_hear_it(unreadable: str) -> None:
    with (
        blocking.PullConsumer("billing", nameserver=unreadable) as consumer,
        pytest.raises(RocketMQError, match="READ permission"),
    ):
        consumer.message_queues("orders")

    async def read() -> None:
        async with aio.PullConsumer("billing", nameserver=unreadable) as reader:
            await reader.message_queues("orders")

    with pytest.raises(RocketMQError, match="READ permission"):
        asyncio.run(read())
