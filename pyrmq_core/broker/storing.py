"""Puts messages into the store for the handlers: what may not be stored, and how a full or failed disk is told."""

from __future__ import annotations

import trio

from pyrmq_core.broker.state import Broker
from pyrmq_core.broker.store.appending import Append
from pyrmq_core.broker.store.message_store import DoesNotFit, Stored
from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.codes import ResponseCode


class Refused(Exception):
    """The message is not taken; `code` and the text are the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def put(broker: Broker, append: Append) -> Stored:
    """Stores messages; `Refused` when the disk does not take them or they are too large."""
    if broker.flusher.failure:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {broker.flusher.failure}")
    try:
        return broker.store.put(append, broker.now_ms())
    except DoesNotFit as error:
        raise illegal(broker, str(error)) from error
    except StoreError as error:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error


def illegal(broker: Broker, reason: str = "") -> Refused:
    """RocketMQ's one answer to everything that is too long, with ours behind it."""
    limit = broker.config.max_message_size
    remark = (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {limit}B, msg properties length limit 32KB."
    )
    return Refused(ResponseCode.MESSAGE_ILLEGAL, f"{remark} {reason}" if reason else remark)


async def make_topic(broker: Broker, *topics: TopicConfig) -> None:
    """The NameServers learn of them before this returns; also when the one who waits for it is gone meanwhile."""
    try:
        for topic in topics:
            broker.topics.put(topic, broker.now_ms())
    except StoreError as error:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error
    announced = trio.Event()

    async def announce() -> None:
        await broker.registration.announce(topics)
        announced.set()

    broker.nursery.start_soon(announce)
    await announced.wait()
