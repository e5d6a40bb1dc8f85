"""The reading of a broker's log, queues and tables, and of a master's bytes, for `fuzzing`, with real files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.servers.broker.ha.log_transfer import BLOCK_HEAD, Reports, in_blocks
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import ABORT_NAME, CHECKPOINT_NAME, OWN_CHECKPOINT_NAME
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.config_files import load_config
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import ALL, SMALL, Sent, opened, put

LOG = "commitlog/" + file_name(0)
QUEUE = "consumequeue/A/0/" + file_name(0)
KEYS = [("A", 0), ("B", 0)]
SENT = [Sent("AB"[number % 2], 0, (b"%02d" % number * 10,), "TagA"[: 4 * (number > 3)]) for number in range(8)]


def _stored() -> dict[str, bytes]:
    files = MemoryFiles()
    store = opened(files)
    put(store, *SENT)
    store.flush()
    store.close()
    return {path: bytes(content) for path, content in files.contents.items()}


STORED = _stored()
LOG_BYTES = STORED[LOG].rstrip(b"\0") + bytes(3)
QUEUE_BYTES, CHECKPOINT_BYTES = STORED[QUEUE], STORED[CHECKPOINT_NAME]
OWN_CHECKPOINT_BYTES = STORED[OWN_CHECKPOINT_NAME]
BLOCKS = in_blocks(0, LOG_BYTES, 300)


def _reads_everything(store: MessageStore) -> None:
    """Reads each queue to its end; an error is one of its offset alone."""
    for key in KEYS:
        offset, end = store.reader.bounds(key)
        while offset < end:
            try:
                answer = store.reader.get(key, offset, ALL)
                assert answer.next_offset > offset
                offset = answer.next_offset
                list(iterate_records(answer.records, check_crc=True))
            except StoreError:
                offset += 1


def _file(path: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        """Opens a store with this content of a file, after a stop and after a kill, and stores and reads in it."""
        for is_clean in (True, False):
            files = MemoryFiles({name: bytearray(content) for name, content in STORED.items()})
            files.contents[path] = bytearray(data[: len(STORED[path])].ljust(len(STORED[path]), b"\0"))
            if not is_clean:
                files.contents[ABORT_NAME] = bytearray(b"1")
            with suppress(StoreError):  # the broker does not start, and says why
                store = opened(files)
                with suppress(StoreError):  # nor does it store behind damage
                    put(store, SENT[0])
                _reads_everything(store)

    return read


log_file, queue_file, checkpoint = _file(LOG), _file(QUEUE), _file(CHECKPOINT_NAME)
own_checkpoint = _file(OWN_CHECKPOINT_NAME)


def masters_blocks(data: bytes) -> None:
    """Copies blocks as a slave does, and replays them; a block that belongs elsewhere ends the copy."""
    store = MessageStore(MemoryFiles(), SMALL)
    store.open(1, is_copy=True)
    at = 0
    with suppress(StoreError):
        while at + BLOCK_HEAD.size <= len(data):
            offset, length = BLOCK_HEAD.unpack_from(data, at)
            at += BLOCK_HEAD.size
            if length < 0 or length > len(data) - at:
                break
            store.copy(offset, data[at : at + length])
            at += length
            while store.replay():
                pass
        store.drop_incomplete()
    _reads_everything(store)


def slaves_reports(data: bytes) -> None:
    """Feeds reports in pieces, and at once: the last one is the same."""
    reports, last = Reports(), None
    for at in range(0, len(data), 3):
        reported = reports.feed(data[at : at + 3])
        last = last if reported is None else reported
    assert Reports().feed(data) == last


def table(data: bytes) -> object:
    files: Files = MemoryFiles({"config/topics.json": bytearray(data), "config/topics.json.bak": bytearray(b"{}")})
    return load_config(files, "topics.json")
