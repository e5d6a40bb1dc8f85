"""Storing messages and making topics, for the processors; an error of the disk becomes a `RequestRefused`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.store.appending import Append
from pyrmq_core.broker.store.message_store import AppendResult, DoesNotFit
from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import ResponseCode


class RequestRefused(Exception):
    """A request that is refused; `code` and the text are the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def put(broker: Broker, append: Append) -> AppendResult:
    """Stores messages; raises `RequestRefused` if the disk fails, storing has ended, or they are too large."""
    try:
        return broker.store.put(append, broker.now_ms())
    except DoesNotFit as error:
        raise message_illegal(broker, str(error)) from error
    except StoreError as error:
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
            await broker.registration.announce(topics)
        except StoreError as error:
            failures.append(error)
        announced.set()

    broker.nursery.start_soon(announce)
    await announced.wait()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def refused_by_disk() -> Iterator[None]:
    """Raises `RequestRefused` in place of a `StoreError`."""
    try:
        yield
    except StoreError as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error
