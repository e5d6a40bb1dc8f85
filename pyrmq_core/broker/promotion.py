"""A slave's store that is started as the master.

The slave had its master's committed offsets, and perhaps not all messages before these. New messages take the missing
ones' places, and a group would never consume them. So offsets beyond the end of their queue go back to it.
"""

from __future__ import annotations

from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.store.disk.files import Files
from pyrmq_core.broker.tables.config_files import FOLDER
from pyrmq_core.broker.tables.consumer_offsets import FILE_NAME
from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)

# A file that a slave leaves in its store, and a master removes.
MARK: Final = f"{FOLDER}/slave"


def mark_slave(files: Files) -> None:
    """Marks a store as a slave's."""
    if files.size(MARK) is None:
        try:
            files.save(MARK, b"a slave's store\n", keep_previous=False)
        except StoreError as error:
            log.error("this store is not marked as a slave's: as a master it would keep offsets as they are: %s", error)


def resume_as_master(broker: Broker) -> None:
    """Puts a master's progress right, at its start, before it delivers and serves; blocks."""
    broker.delays.look_back()
    files = broker.store.files
    if files.size(MARK) is None:
        return
    count = broker.offsets.limit(lambda topic, queue_id: broker.store.bounds((topic, queue_id))[1])
    log.info("the store of a slave is a master's now; %d offsets of groups were beyond its messages", count)
    try:
        if (text := broker.offsets.unsaved()) is not None:
            files.save(f"{FOLDER}/{FILE_NAME}", text())
        files.remove(MARK)
    except StoreError as error:  # of a full disk: the next start does the same again
        broker.offsets.is_changed = True
        log.error("the offsets of this former slave are not written: %s", error)
