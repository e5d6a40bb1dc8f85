"""The blocking `LitePullConsumer`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.consumer.group.topic_watch import TopicListener
from pyrmq_core.client.consumer.lite_pull_consumer import LitePullConsumer as AsyncLitePullConsumer
from pyrmq_core.client.consumer.lite_pull_settings import LitePullSettings
from pyrmq_core.client.consumer.running_lite_pull import LEAVING_SECONDS
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, MessageQueue, Problem


class LitePullConsumer(BlockingFace[AsyncLitePullConsumer]):
    """The blocking `pyrmq_core.LitePullConsumer`; `client` is a blocking one too. One thread polls."""

    @parameters_of(LitePullSettings[Client])
    def __init__(self, settings: LitePullSettings[Client]) -> None:
        super().__init__()
        self.group = settings.group
        self._settings = settings
        self._received = 0
        if settings.shared_client(Client, "pyrmq_core.blocking.Client") is None:
            self._make()  # raises for wrong arguments now, not at the first call

    def __repr__(self) -> str:
        return f"<blocking LitePullConsumer {self.group}>"

    def _make(self) -> AsyncLitePullConsumer:
        client = self._settings.client
        return AsyncLitePullConsumer._of(self._settings, None if client is None else client._async())

    def _closing_seconds(self, opened: HeldContext[AsyncLitePullConsumer]) -> float:
        return LEAVING_SECONDS

    @property
    def state(self) -> ServiceState:
        """The state of the consumer's life: just created, running, shut down, or start failed."""
        return self._service_state()

    def close(self) -> None:
        """Stores offsets and leaves the group; the messages of the last poll count as consumed, unless the `with` block
        failed. A second call does nothing."""
        if self._opened is not None:
            with suppress(InvalidState):
                consumer = self._opened.value
                portal().soon(setattr, consumer, "_received", self._received)
        super().close()

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Subscribes to a topic, or changes its subscription: the group's members share its queues."""
        self._run(lambda consumer: consumer.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Ends the subscription; messages of the topic that no poll returned are left to the group."""
        self._run(lambda consumer: consumer.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue], *, tags: str = "*", sql: str | None = None) -> None:
        """Reads these queues and no others, whatever the group's members read."""
        self._run(lambda consumer: consumer.assign(queues, tags=tags, sql=sql))

    @property
    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now."""

        async def read(consumer: AsyncLitePullConsumer) -> tuple[MessageQueue, ...]:
            return consumer.assigned_queues

        return self._run(read)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The background requests that failed at least twice in a row, which this consumer waits for.

        A server refuses them, does not answer, or cannot be reached. Those of its client count too: heartbeats, routes.
        """

        async def read(consumer: AsyncLitePullConsumer) -> tuple[Problem, ...]:
            return consumer.problems

        return self._run(read)

    def poll(self, timeout: float = 5.0) -> Sequence[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue, in their order; none if none came in time.

        The messages of the poll before count as consumed from now on. If a poll is interrupted (Ctrl-C), messages that
        it had taken come again with the next one.
        """
        self._received, messages = self._run(lambda consumer: consumer._poll(timeout, self._received))
        return messages

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Has the next polls return the queue's messages from `offset` on; what was pulled of it is dropped."""
        self._run(lambda consumer: consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Goes to the oldest message that the queue's broker keeps."""
        self._run(lambda consumer: consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Goes behind the last message, to the next one that will be stored."""
        self._run(lambda consumer: consumer.seek_to_end(queue))

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Returns no messages of these queues until `resume`, and pulls none; a queue that is given up is forgotten."""

        async def pause(consumer: AsyncLitePullConsumer) -> None:
            consumer.pause(queues)

        self._run(pause)

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Ends the pause of these queues."""

        async def resume(consumer: AsyncLitePullConsumer) -> None:
            consumer.resume(queues)

        self._run(resume)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Stores the offsets of all messages that polls have returned, or those of `offsets`, of assigned queues."""
        self._run(lambda consumer: consumer._commit(offsets, self._received))

    def committed(self, queue: MessageQueue) -> int | None:
        """Returns the group's stored offset of the queue; None without one."""
        return self._run(lambda consumer: consumer.committed(queue))

    def offset_for_timestamp(self, queue: MessageQueue, when: datetime) -> int:
        """Returns the offset of the first message stored at or after `when` (with a time zone), else the maximum."""
        return self._run(lambda consumer: consumer.offset_for_timestamp(queue, when))

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues the topic may be read from; raises `NoRoute` if no NameServer knows it."""
        return self._run(lambda consumer: consumer.message_queues(topic))

    def on_topic_changed(self, topic: str, listener: TopicListener | None) -> None:
        """Calls `listener(topic, queues)` whenever the topic's queues are other ones than before.

        It runs on the library's own thread: it must not wait, nor call a blocking name of this library.
        """
        self._run(lambda consumer: consumer.on_topic_changed(topic, listener))
