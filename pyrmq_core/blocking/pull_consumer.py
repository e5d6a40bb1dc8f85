"""The blocking `PullConsumer`. Its methods are made from those of the trio `PullConsumer`."""

from __future__ import annotations

from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import blocking_form
from pyrmq_core.blocking.range_reader import blocking_reader
from pyrmq_core.client.consumer.pull_consumer import PullConsumer as AsyncPullConsumer
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of


class PullConsumer(OwnerFace[AsyncPullConsumer]):
    """The blocking `pyrmq_core.PullConsumer`. `client` is a blocking `Client`. Safe to use from many threads.

    Iterating over `read` calls the library's loop, in another thread, for each pull. `read_joined` and `read_arrow` are
    cheaper: one call returns the messages of many pulls.
    """

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        super().__init__(AsyncPullConsumer, settings)
        self.group = settings.group

    check_sql = blocking_form(AsyncPullConsumer.check_sql)
    cluster_info = blocking_form(AsyncPullConsumer.cluster_info)
    commit = blocking_form(AsyncPullConsumer.commit)
    commit_offsets = blocking_form(AsyncPullConsumer.commit_offsets)
    committed = blocking_form(AsyncPullConsumer.committed)
    committed_offsets = blocking_form(AsyncPullConsumer.committed_offsets)
    current_queues = blocking_form(AsyncPullConsumer.current_queues)
    expected_brokers = blocking_form(AsyncPullConsumer.expected_brokers)
    manifests = blocking_form(AsyncPullConsumer.manifests)
    infer_schema = blocking_form(AsyncPullConsumer.infer_schema)
    manifest_end = blocking_form(AsyncPullConsumer.manifest_end)
    max_offset = blocking_form(AsyncPullConsumer.max_offset)
    max_offsets = blocking_form(AsyncPullConsumer.max_offsets)
    mean_sizes = blocking_form(AsyncPullConsumer.mean_sizes)
    message_queues = blocking_form(AsyncPullConsumer.message_queues)
    min_offset = blocking_form(AsyncPullConsumer.min_offset)
    min_offsets = blocking_form(AsyncPullConsumer.min_offsets)
    offset_at = blocking_form(AsyncPullConsumer.offset_at)
    offset_bounds = blocking_form(AsyncPullConsumer.offset_bounds)
    offsets_at = blocking_form(AsyncPullConsumer.offsets_at)
    pull = blocking_form(AsyncPullConsumer.pull)
    read = blocking_reader(AsyncPullConsumer.read)
    read_arrow = blocking_reader(AsyncPullConsumer.read_arrow)
    read_committed = blocking_reader(AsyncPullConsumer.read_committed)
    read_joined = blocking_reader(AsyncPullConsumer.read_joined)
    read_manifest = blocking_form(AsyncPullConsumer.read_manifest)
    read_ranges = blocking_reader(AsyncPullConsumer.read_ranges)
    topic_queues = blocking_form(AsyncPullConsumer.topic_queues)
    topics = blocking_form(AsyncPullConsumer.topics)
