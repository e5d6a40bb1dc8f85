"""The blocking `LitePullConsumer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import blocking_form, blocking_form_of_function
from pyrmq_core.client.consumer.lite_pull_consumer import LitePullConsumer as AsyncLitePullConsumer
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.running_member import LEAVING_SECONDS
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, MessageQueue, Problem


class LitePullConsumer(OwnerFace[AsyncLitePullConsumer]):
    """The blocking `pyrmq_core.LitePullConsumer`. `client` is a blocking `Client`.

    Only one thread at a time may call `poll`.
    """

    @parameters_of(LitePullSettings[Client])
    def __init__(self, settings: LitePullSettings[Client]) -> None:
        super().__init__(AsyncLitePullConsumer, settings)
        self.group = settings.group
        self._received = 0

    def _closing_seconds(self, opened: HeldContext[AsyncLitePullConsumer]) -> float:
        return LEAVING_SECONDS

    def close(self) -> None:
        """Stores the consumer offsets and leaves the group. A second call does nothing.

        The messages of the last poll are stored as consumed, unless the `with` block raised an exception.
        """
        if self._opened is not None:
            with suppress(InvalidState):
                consumer = self._opened.value
                portal().soon(setattr, consumer, "_received", self._received)
        super().close()

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now."""

        async def read(consumer: AsyncLitePullConsumer) -> tuple[MessageQueue, ...]:
            return consumer.assigned_queues

        return self._run(read)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Background requests of this consumer and its client that failed twice or more in a row, and are retried."""

        async def read(consumer: AsyncLitePullConsumer) -> tuple[Problem, ...]:
            return consumer.problems

        return self._run(read)

    def poll(self, timeout: float = 5.0) -> Sequence[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue, in order, or an empty list after `timeout` seconds.

        The call marks the messages of the previous poll as consumed. If Ctrl-C interrupts a poll, the next poll returns
        its messages.
        """
        self._received, messages = self._run(lambda consumer: consumer._poll(timeout, self._received))
        return messages

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the consumer offsets of all messages that polls have returned, or the given `offsets`.

        Each offset is that of the next message to read. The call returns when they are stored, and raises the first
        failure. Raises `InvalidArgument` for a queue that this consumer does not read.
        """
        self._run(lambda consumer: consumer._commit(offsets, self._received))

    assign = blocking_form(AsyncLitePullConsumer.assign)
    committed = blocking_form(AsyncLitePullConsumer.committed)
    message_queues = blocking_form(AsyncLitePullConsumer.message_queues)
    offset_for_timestamp = blocking_form(AsyncLitePullConsumer.offset_for_timestamp)
    on_topic_changed = blocking_form(AsyncLitePullConsumer.on_topic_changed)
    pause = blocking_form_of_function(AsyncLitePullConsumer.pause)
    resume = blocking_form_of_function(AsyncLitePullConsumer.resume)
    seek = blocking_form(AsyncLitePullConsumer.seek)
    seek_to_begin = blocking_form(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = blocking_form(AsyncLitePullConsumer.seek_to_end)
    subscribe = blocking_form(AsyncLitePullConsumer.subscribe)
    unsubscribe = blocking_form(AsyncLitePullConsumer.unsubscribe)
