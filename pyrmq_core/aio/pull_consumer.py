"""The asyncio `PullConsumer`. Its methods are made from those of the trio `PullConsumer`."""

from __future__ import annotations

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import asyncio_form, asyncio_form_of_iterator
from pyrmq_core.client.consumer.pull_consumer import PullConsumer as TrioPullConsumer
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of


class PullConsumer(OwnerFace[TrioPullConsumer]):
    """The asyncio form of `pyrmq_core.PullConsumer`. `client` is an asyncio `Client`.

    Iterating over `read` calls the library's loop, in another thread, for each pull. `read_joined` and `read_arrow` are
    cheaper: one call returns the messages of many pulls.
    """

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        self.group = settings.group
        super().__init__(TrioPullConsumer, settings)

    check_sql = asyncio_form(TrioPullConsumer.check_sql)
    cluster_info = asyncio_form(TrioPullConsumer.cluster_info)
    commit = asyncio_form(TrioPullConsumer.commit)
    commit_offsets = asyncio_form(TrioPullConsumer.commit_offsets)
    committed = asyncio_form(TrioPullConsumer.committed)
    committed_offsets = asyncio_form(TrioPullConsumer.committed_offsets)
    current_queues = asyncio_form(TrioPullConsumer.current_queues)
    expected_brokers = asyncio_form(TrioPullConsumer.expected_brokers)
    manifests = asyncio_form(TrioPullConsumer.manifests)
    infer_schema = asyncio_form(TrioPullConsumer.infer_schema)
    manifest_end = asyncio_form(TrioPullConsumer.manifest_end)
    max_offset = asyncio_form(TrioPullConsumer.max_offset)
    max_offsets = asyncio_form(TrioPullConsumer.max_offsets)
    mean_sizes = asyncio_form(TrioPullConsumer.mean_sizes)
    message_queues = asyncio_form(TrioPullConsumer.message_queues)
    min_offset = asyncio_form(TrioPullConsumer.min_offset)
    min_offsets = asyncio_form(TrioPullConsumer.min_offsets)
    offset_at = asyncio_form(TrioPullConsumer.offset_at)
    offset_bounds = asyncio_form(TrioPullConsumer.offset_bounds)
    offsets_at = asyncio_form(TrioPullConsumer.offsets_at)
    pull = asyncio_form(TrioPullConsumer.pull)
    read = asyncio_form_of_iterator(TrioPullConsumer.read)
    read_arrow = asyncio_form_of_iterator(TrioPullConsumer.read_arrow)
    read_committed = asyncio_form_of_iterator(TrioPullConsumer.read_committed)
    read_joined = asyncio_form_of_iterator(TrioPullConsumer.read_joined)
    read_manifest = asyncio_form(TrioPullConsumer.read_manifest)
    read_ranges = asyncio_form_of_iterator(TrioPullConsumer.read_ranges)
    topic_queues = asyncio_form(TrioPullConsumer.topic_queues)
    topics = asyncio_form(TrioPullConsumer.topics)
