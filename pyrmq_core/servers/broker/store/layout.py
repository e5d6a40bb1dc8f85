"""A store's folders, by RocketMQ's names, the sizes of its files, and a function that opens a folder's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.store.formats import file_offset

LOG_FOLDER: Final = "commitlog"
QUEUES_FOLDER: Final = "consumequeue"
BATCH_QUEUES_FOLDER: Final = "batchconsumequeue"
QUEUE_FOLDERS: Final = (QUEUES_FOLDER, BATCH_QUEUES_FOLDER)
CHECKPOINT_NAME: Final = "checkpoint"
OWN_CHECKPOINT_NAME: Final = "checkpoint.pyrmq"
ABORT_NAME: Final = "abort"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store. The sizes of its files can never be changed.

    RocketMQ's names are mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, mapperFileSizeBatchConsumeQueue,
    flushDiskType (SYNC_FLUSH) and storePathCommitLog. `keeps_lite_queues` stands for enableLmq and enableMultiDispatch.
    """

    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    batch_queue_file_bytes: int = 13_800_000
    readable_when_flushed: bool = False
    log_folder: str = LOG_FOLDER
    keeps_lite_queues: bool = False


def open_all(files: Files, folder: str, file_bytes: int, setting: str) -> dict[int, StoredFile]:
    """Opens a folder's files, and returns them by the offset after which each is named, in ascending order.

    An empty last file is removed. Raises `StoreError` for a file whose length is not `file_bytes`. The error mentions
    `setting`, RocketMQ's name of the length.
    """
    names = [name for name in files.names(folder) if file_offset(name) is not None]
    if names and not files.size(f"{folder}/{names[-1]}"):
        files.remove(f"{folder}/{names.pop()}")
    opened = {}
    for name in names:
        path = f"{folder}/{name}"
        if (size := files.size(path)) != file_bytes:
            raise StoreError(
                f"{path} has {size} bytes and {setting} is {file_bytes}; set it as it was when the store was made"
            )
        opened[int(name)] = files.open(path, file_bytes)
    return opened
