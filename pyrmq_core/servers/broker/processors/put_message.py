"""Storing messages and making topics, for the processors; an error of the disk becomes a `RequestRefused`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.store.appending import Append, AppendResult, DoesNotFit


class RequestRefused(Exception):
    """A request that is refused; `code` and the text are the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def put(broker: Broker, append: Append) -> AppendResult:
    """Stores messages and counts them.

    Raises `RequestRefused` if the disk fails, storing has ended, or they are too large.
    """
    began = time.perf_counter_ns()
    with refused_by_store(broker):
        stored = broker.store.put(append, broker.now_ms())
    took_ms = (time.perf_counter_ns() - began) // 1_000_000
    messages = append.inner_num or len(stored.positions)
    broker.figures.note_put(append.topic, messages, stored.end - stored.positions[0], took_ms)
    broker.figures.note_put_latency(append.topic, append.queue_id, took_ms)
    if broker.measures is not None:
        broker.measures.note_put(append.topic, messages, stored.end - stored.positions[0])
    return stored


async def wait_until_safe(broker: Broker, end: int) -> ResponseCode:
    """Returns when the log before `end` is on the medium (SYNC_FLUSH), and enough slaves have it (SYNC_MASTER).

    Both time limits begin now; the code names the limit that passed, or is SUCCESS. As in RocketMQ, the code about the
    slaves replaces the one about the medium. Raises `RequestRefused` if the disk failed.
    """
    code, replicas, began = ResponseCode.SUCCESS, broker.ha.replicas, trio.current_time()
    can_copy = replicas.can_copy(end)
    if broker.flusher.is_sync and not await broker.flusher.wait_flushed(end):
        if broker.flusher.failure:
            remark = f"service not available now: {broker.flusher.failure}"
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        code = ResponseCode.FLUSH_DISK_TIMEOUT
    if replicas.rules.copies > 1:
        if not can_copy:
            code = ResponseCode.SLAVE_NOT_AVAILABLE
        elif not await replicas.wait(end, began + replicas.rules.timeout):
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT
    return code


@contextlib.contextmanager
def refused_by_store(broker: Broker) -> Iterator[None]:
    """Raises `RequestRefused` in place of the errors of storing a message."""
    try:
        yield
    except DoesNotFit as error:
        broker.figures.store.put_failures += 1
        raise message_illegal(broker, str(error)) from error
    except StoreError as error:
        broker.figures.store.put_failures += 1
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error


def message_illegal(broker: Broker, reason: str = "") -> RequestRefused:
    """Returns RocketMQ's answer to a message that cannot be stored, followed by this broker's own reason."""
    limit = broker.config.max_message_size
    remark = (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {limit}B, msg properties length limit 32KB."
    )
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"{remark} {reason}" if reason else remark)


async def make_topic(broker: Broker, *topics: TopicConfig) -> None:
    """Makes or changes topics; returns when the file has them and, after that, the NameServers are informed.

    Raises `RequestRefused` when the file cannot be written.
    """
    with refused_by_disk():
        await announce_topics(broker, *topics, behind_file=True)


async def announce_topics(broker: Broker, *topics: TopicConfig, behind_file: bool = False) -> None:
    """Makes or changes topics; returns when the NameServers are informed, which a cancelled caller does not prevent.

    Their file is written in the background, or with `behind_file` before the NameServers are informed: if that fails,
    `StoreError` is raised, and the next registration announces the topics.
    """
    for topic in topics:
        broker.topics.put(topic, broker.now_ms())
    announced = trio.Event()
    failures: list[StoreError] = []

    async def announce() -> None:
        try:
            if behind_file:
                await broker.topics.file.written()
            await broker.registration.announce()
        except StoreError as error:
            failures.append(error)
        announced.set()

    broker.nursery.start_soon(announce)
    await announced.wait()
    if failures:
        raise failures[0]


async def ensure_topic(broker: Broker, topic: TopicConfig) -> None:
    """Makes the topic if there is none; returns when the file has it, and raises `StoreError` if that fails."""
    if topic.topic not in broker.topics:
        await announce_topics(broker, topic, behind_file=True)
    await broker.topics.saved(topic.topic)


@contextlib.contextmanager
def refused_by_disk() -> Iterator[None]:
    """Raises `RequestRefused` in place of a `StoreError`."""
    try:
        yield
    except StoreError as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error
