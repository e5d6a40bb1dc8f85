"""The asyncio `LitePullConsumer`. Most of its methods are made from the trio `LitePullConsumer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import asyncio_form, asyncio_form_of_function
from pyrmq_core.client.consumer.lite_pull_consumer import LitePullConsumer as TrioLitePullConsumer
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.running_member import LEAVING_SECONDS
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, MessageQueue, Problem


class LitePullConsumer(OwnerFace[TrioLitePullConsumer]):
    """The asyncio form of `pyrmq_core.LitePullConsumer`. `client` is an asyncio `Client`.

    Only one task at a time may call `poll`.
    """

    @parameters_of(LitePullSettings[Client])
    def __init__(self, settings: LitePullSettings[Client]) -> None:
        self.group = settings.group
        self._received = 0
        super().__init__(TrioLitePullConsumer, settings)

    def _closing_seconds(self, held: HeldContext[TrioLitePullConsumer]) -> float:
        return LEAVING_SECONDS

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now. There are none before it is open."""
        held = self._held
        return held.value.assigned_queues if held is not None and held.has_opened else ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""
        held = self._held
        return held.value.problems if held is not None and held.has_opened else ()

    async def close(self) -> None:
        """Stores the consumer offsets and leaves the group. A second call does nothing.

        The messages of the last poll are stored as consumed, unless the `async with` block raised an exception.
        """
        held = self._held
        if held is not None and held.has_opened:
            with suppress(InvalidState):
                portal().soon(setattr, held.value, "_received", self._received)
        await super().close()

    async def poll(self, timeout: float = 5.0) -> Sequence[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue, in order, or an empty list after `timeout` seconds.

        The call marks the messages of the previous poll as consumed. If a poll is cancelled, the next poll returns its
        messages.
        """
        received = self._received
        self._received, messages = await self._run(lambda consumer: consumer._poll(timeout, received))
        return messages

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the consumer offsets of all messages that polls have returned, or the given `offsets`.

        Each offset is that of the next message to read. The call returns when they are stored, and raises the first
        failure. Raises `InvalidArgument` for a queue that this consumer does not read.
        """
        received = self._received
        await self._run(lambda consumer: consumer._commit(offsets, received))

    assign = asyncio_form(TrioLitePullConsumer.assign)
    committed = asyncio_form(TrioLitePullConsumer.committed)
    message_queues = asyncio_form(TrioLitePullConsumer.message_queues)
    offset_for_timestamp = asyncio_form(TrioLitePullConsumer.offset_for_timestamp)
    on_topic_changed = asyncio_form(TrioLitePullConsumer.on_topic_changed)
    pause = asyncio_form_of_function(TrioLitePullConsumer.pause)
    resume = asyncio_form_of_function(TrioLitePullConsumer.resume)
    seek = asyncio_form(TrioLitePullConsumer.seek)
    seek_to_begin = asyncio_form(TrioLitePullConsumer.seek_to_begin)
    seek_to_end = asyncio_form(TrioLitePullConsumer.seek_to_end)
    subscribe = asyncio_form(TrioLitePullConsumer.subscribe)
    unsubscribe = asyncio_form(TrioLitePullConsumer.unsubscribe)
