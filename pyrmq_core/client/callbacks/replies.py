"""Replies that brokers push, passed to the waiting task by their correlation id (ClientRemotingProcessor.java)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import trio

from pyrmq_core.model import MessageExt
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.messages.properties import ARRIVE_TIME, CORRELATION_ID
from pyrmq_core.protocol.requests.client.push_reply import PushReply

log = logging.getLogger(__name__)


class AwaitedReply:
    """The reply to one request message; `received` is set when it arrives."""

    def __init__(self) -> None:
        self.received = trio.Event()
        self.message: MessageExt | None = None


class Replies:
    """The handler of pushed replies: those that a client waits for, by correlation id."""

    def __init__(self) -> None:
        self._awaited: dict[str, AwaitedReply] = {}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take}

    def _take(self, request: Command, peer: Peer) -> Command:
        """Passes a reply to its waiting task; one without such a task is also acknowledged, as in Java."""
        message = PushReply.from_command(request).message()
        arrived = {**message.properties, ARRIVE_TIME: str(time.time_ns() // 1_000_000)}
        awaited = self._awaited.get(message.properties.get(CORRELATION_ID, ""))
        if awaited is None:
            log.debug("%s pushed a reply that no request waits for", peer.address)
        else:
            awaited.message = replace(message, properties=arrived)
            awaited.received.set()
        return success()

    @contextmanager
    def expecting(self, correlation_id: str) -> Iterator[AwaitedReply]:
        awaited = self._awaited[correlation_id] = AwaitedReply()
        try:
            yield awaited
        finally:
            del self._awaited[correlation_id]
