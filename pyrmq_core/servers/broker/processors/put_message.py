"""`MessageWriter`: stores messages for the handlers of requests, and converts disk errors to `RequestRefused`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.ha.replicas import Replicas
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import Append, AppendResult, DoesNotFit
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer


class RequestRefused(Exception):
    """Raised to refuse a request. `code` and the text become the response's code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """The writer of messages to the store. It counts them, and can wait until they are synced and copied."""

    settings: LiveSettings
    store: MessageStore
    counts: Counts
    flusher: Flusher
    replicas: Replicas

    def put(self, append: Append) -> AppendResult:
        """Stores messages. Raises `RequestRefused` if the disk fails, they are too large, or the broker is stopping."""
        began = time.perf_counter_ns()
        with self.refusals():
            stored = self.store.put(append, clock.now_ms())
        self.counts.note_put(append, stored, (time.perf_counter_ns() - began) // 1_000_000)
        return stored

    @property
    def has_to_wait(self) -> bool:
        """True if stored messages must be synced (SYNC_FLUSH) or copied to slaves before a send is answered."""
        return self.flusher.is_sync or self.replicas.rules.copies > 1

    async def wait_until_safe(self, end: int) -> ResponseCode:
        """Waits until the log up to `end` is synced (SYNC_FLUSH), and enough slaves have it (SYNC_MASTER).

        Both waits have time limits, which begin now. Returns SUCCESS, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, or
        SLAVE_NOT_AVAILABLE if too few slaves are in sync. As in RocketMQ, a code about slaves has precedence. Raises
        `RequestRefused` if the disk failed.
        """
        code, replicas, began = ResponseCode.SUCCESS, self.replicas, trio.current_time()
        can_copy = replicas.can_copy(end)
        if self.flusher.is_sync and not await self.flusher.wait_flushed(end):
            if self.flusher.failure:
                remark = f"service not available now: {self.flusher.failure}"
                raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            code = ResponseCode.FLUSH_DISK_TIMEOUT
        if replicas.rules.copies > 1:
            if not can_copy:
                code = ResponseCode.SLAVE_NOT_AVAILABLE
            elif not await replicas.wait(end, began + replicas.rules.timeout):
                code = ResponseCode.FLUSH_SLAVE_TIMEOUT
        return code

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Converts a `StoreError` of a `with` block that stores messages to `RequestRefused`. Counts the failure."""
        try:
            yield
        except DoesNotFit as error:
            self.counts.figures.store.put_failures += 1
            raise self.illegal(str(error)) from error
        except StoreError as error:
            self.counts.figures.store.put_failures += 1
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error

    def illegal(self, reason: str = "") -> RequestRefused:
        """Returns the refusal MESSAGE_ILLEGAL, with RocketMQ's text followed by `reason`."""
        limit = self.settings.config.max_message_size
        remark = (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {limit}B, msg properties length limit 32KB."
        )
        return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"{remark} {reason}" if reason else remark)


@contextlib.contextmanager
def refused_by_disk() -> Iterator[None]:
    """Converts a `StoreError` of a `with` block to `RequestRefused`."""
    try:
        yield
    except StoreError as error:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from error


async def make_topic(announcer: TopicAnnouncer, *topics: TopicConfig) -> None:
    """Creates topics and announces them once their file is written. Raises `RequestRefused` if that fails."""
    with refused_by_disk():
        await announcer.announce(*topics, behind_file=True)
