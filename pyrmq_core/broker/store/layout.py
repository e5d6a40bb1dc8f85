"""A store's folders, by RocketMQ's names, and the sizes of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOG_FOLDER: Final = "commitlog"
QUEUES_FOLDER: Final = "consumequeue"
BATCH_QUEUES_FOLDER: Final = "batchconsumequeue"
CHECKPOINT_NAME: Final = "checkpoint"
ABORT_NAME: Final = "abort"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The sizes of files, which stay as they were when the store was made, the log's folder, and SYNC_FLUSH.

    RocketMQ's names are mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, mapperFileSizeBatchConsumeQueue,
    storePathCommitLog and flushDiskType.
    """

    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    batch_queue_file_bytes: int = 13_800_000
    readable_when_flushed: bool = False
    log_folder: str = LOG_FOLDER
