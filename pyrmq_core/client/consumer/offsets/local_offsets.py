"""`LocalOffsetStore`: keeps a broadcasting consumer's offsets in a local file (LocalFileOffsetStore.java).

The file is read and written in a worker thread. If the client has an instance name, the file's folder is named
`ip@instance`, as in Java, so the next start finds the offsets. Without an instance name the folder is named after the
client id, which is new at each start, so the consumer begins without stored offsets.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import trio

from pyrmq_core.client.consumer.offsets.offset_file import OffsetFile
from pyrmq_core.client.consumer.offsets.offsets_in_memory import OffsetsInMemory
from pyrmq_core.errors import StoreError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine

log = line_logger(__name__)


class LocalOffsetStore(OffsetsInMemory):
    """The store of a broadcasting consumer's offsets in a file, by default below `~/.rocketmq_offsets`, as in Java."""

    def __init__(self, client_id: str, group: str, directory: Path | None = None) -> None:
        super().__init__()
        self._file = OffsetFile(directory, client_id, group)
        self._lock = trio.Lock()
        self._failure_line = RareLine()

    async def load(self) -> None:
        async with self._lock:
            for queue, offset in (await trio.to_thread.run_sync(self._file.read)).items():
                self._adopt(queue, offset, self.known(queue))

    async def stored(self, queue: MessageQueue) -> int | None:
        async with self._lock:
            before = self.known(queue)
            offset = (await trio.to_thread.run_sync(self._file.read)).get(queue)
            if offset is None or offset < 0:
                return None
            self._adopt(queue, offset, before)
            return offset

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Writes the changed offsets to the file, if any, and syncs it to disk. `confirmed` makes no difference."""
        async with self._lock:
            changed = self._changed(queues, confirmed=confirmed)
            if not changed:
                return
            offsets = {queue: consumed.begin_sending() for queue, consumed in changed.items()}
            try:
                await trio.to_thread.run_sync(self._file.merge, offsets)
            except StoreError as error:
                if self._failure_line.is_due():
                    log.warning("offsets will be stored again: %s%s", error, self._failure_line.left_out())
                return
            for queue, consumed in changed.items():
                consumed.end_sending(offsets[queue], confirmed=True)
