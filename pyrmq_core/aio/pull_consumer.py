"""The asyncio `PullConsumer`: every method is the trio one, lent to the library's loop."""

from __future__ import annotations

from functools import partial

from pyrmq_core.aio.client import Client
from pyrmq_core.aio.face import AsyncioFace, lent, lent_iterator
from pyrmq_core.client.consumer.pull_consumer import PullConsumer as TrioPullConsumer
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of


class PullConsumer(AsyncioFace[TrioPullConsumer]):
    """The asyncio form of `pyrmq_core.PullConsumer`; `client` is an asyncio one.

    A read is a hop to the library's loop for each pull; `read_joined` and `read_arrow` hop once for many.
    """

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        self.group = settings.group
        client = settings.shared_client(Client, "pyrmq_core.aio.Client")
        super().__init__(partial(TrioPullConsumer._of, settings), client)

    def __repr__(self) -> str:
        return f"<asyncio PullConsumer {self.group}>"

    check_sql = lent(TrioPullConsumer.check_sql)
    cluster_info = lent(TrioPullConsumer.cluster_info)
    commit = lent(TrioPullConsumer.commit)
    commit_offsets = lent(TrioPullConsumer.commit_offsets)
    committed = lent(TrioPullConsumer.committed)
    committed_offsets = lent(TrioPullConsumer.committed_offsets)
    current_queues = lent(TrioPullConsumer.current_queues)
    expected_brokers = lent(TrioPullConsumer.expected_brokers)
    max_offset = lent(TrioPullConsumer.max_offset)
    max_offsets = lent(TrioPullConsumer.max_offsets)
    mean_sizes = lent(TrioPullConsumer.mean_sizes)
    message_queues = lent(TrioPullConsumer.message_queues)
    min_offset = lent(TrioPullConsumer.min_offset)
    min_offsets = lent(TrioPullConsumer.min_offsets)
    offset_at = lent(TrioPullConsumer.offset_at)
    offset_bounds = lent(TrioPullConsumer.offset_bounds)
    offsets_at = lent(TrioPullConsumer.offsets_at)
    pull = lent(TrioPullConsumer.pull)
    read = lent_iterator(TrioPullConsumer.read)
    read_arrow = lent_iterator(TrioPullConsumer.read_arrow)
    read_joined = lent_iterator(TrioPullConsumer.read_joined)
    read_ranges = lent_iterator(TrioPullConsumer.read_ranges)
    topic_queues = lent(TrioPullConsumer.topic_queues)
    topics = lent(TrioPullConsumer.topics)
