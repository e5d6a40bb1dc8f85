"""The state of one queue of a consumer, as `mqadmin consumerStatus` shows it (ProcessQueue.fillProcessQueueInfo)."""

from __future__ import annotations

import time
from typing import Final

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ProcessQueueInfo

MIB: Final = 1024 * 1024


def queue_info(assigned: AssignedQueue, *, locked: bool = False) -> ProcessQueueInfo:
    """Returns the state; `locked` says whether an orderly consumer holds the broker's lock."""
    process_queue = assigned.process_queue
    held = len(process_queue)
    ago = trio.current_time() - assigned.intake.pulled_at
    return ProcessQueueInfo(
        commit_offset=process_queue.offset_to_commit,
        cached_msg_min_offset=process_queue.offset_to_commit if held else 0,
        cached_msg_max_offset=process_queue.highest if held else 0,
        cached_msg_count=held,
        cached_msg_size_mib=process_queue.bytes // MIB,
        locked=locked,
        dropped=process_queue.is_dropped,
        last_pull_timestamp_ms=round((time.time() - ago) * 1000),
        last_consume_timestamp_ms=assigned.consumed_at_ms,
    )
