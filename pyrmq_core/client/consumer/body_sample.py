"""Infers a topic's columns from a sample of message bodies: the newest messages of each queue.

Bodies are parsed in a thread, so that the loop continues meanwhile. A cancelled call ends at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import trio

from pyrmq_core.client.consumer.pull.puller import Filter, Puller, ReadWindow
from pyrmq_core.columnar.body_schema import MAX_BODY_BYTES, BodySampler, BodySchema
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.readable import UnreadableRecord, iterate_readable

# The most body bytes that are read for a sample, since reading takes time.
SAMPLE_BYTES: Final = 64 * 1024 * 1024
# With a filter, a queue is read backwards in steps until enough messages pass, or this many were read. Each step reads
# eight times as many as the step before.
MOST_BEHIND: Final = 1_000_000
STEP_GROWTH: Final = 8
# A larger body is not decompressed, but counts as a message of the sample.
RULES: Final = BodyRules(verify_crc=False, keep_undecodable=True, max_body_bytes=MAX_BODY_BYTES)


async def sampled_schema(
    puller: Puller,
    bounds: Mapping[MessageQueue, OffsetRange],
    wanted: Filter,
    sample: int,
    on_progress: Callable[[int], object] | None = None,
) -> BodySchema:
    reading = _SampleReading(wanted, on_progress)
    step, ends = sample, {queue: kept.end for queue, kept in bounds.items()}
    while ends and not reading.is_full:
        ranges = [(queue, OffsetRange(max(bounds[queue].start, end - step), end)) for queue, end in ends.items()]
        ranges = [(queue, part) for queue, part in ranges if len(part)]
        await reading.read(puller, ranges)
        if wanted.passes_all:
            break
        ends = {
            queue: part.start
            for queue, part in ranges
            if reading.counts.get(queue, 0) < sample and bounds[queue].end - part.start < MOST_BEHIND
        }
        step *= STEP_GROWTH
    return await trio.to_thread.run_sync(reading.sampler.schema, abandon_on_cancel=True)


class _SampleReading:
    def __init__(self, wanted: Filter, on_progress: Callable[[int], object] | None) -> None:
        self.sampler = BodySampler()
        self.counts: dict[MessageQueue, int] = {}
        self._wanted = wanted
        self._on_progress = on_progress
        self._bytes_left = SAMPLE_BYTES
        self._is_abandoned = threading.Event()

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    async def read(self, puller: Puller, ranges: list[tuple[MessageQueue, OffsetRange]]) -> None:
        within = dict(ranges)
        async with puller.read_ranges(ranges, tags=self._wanted, window=ReadWindow()) as lists:
            async for pulls in lists:
                for pull in pulls:
                    try:
                        await trio.to_thread.run_sync(self._add, pull, within[pull.queue], abandon_on_cancel=True)
                    except trio.Cancelled:
                        self._is_abandoned.set()
                        raise
                    if self.is_full:
                        return

    def _add(self, pull: RawPull, within: OffsetRange) -> None:
        """Adds the bodies of the messages at the offsets `within`. Runs in a thread, until its caller is cancelled."""
        for message in iterate_readable(pull, within, RULES):
            if self._is_abandoned.is_set():
                return
            if self.is_full:
                break
            if isinstance(message, UnreadableRecord):
                continue
            if isinstance(self._wanted, TagFilter) and not self._wanted.matches(message.tags):
                continue
            self.sampler.add(message.body)
            self._bytes_left -= len(message.body)
            self.counts[pull.queue] = self.counts.get(pull.queue, 0) + 1
        if self._on_progress is not None:
            self._on_progress(sum(self.counts.values()))
