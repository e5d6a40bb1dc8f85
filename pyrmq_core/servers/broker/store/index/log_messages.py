"""Reads the messages that the index lacks from the log, in steps of limited work."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import SHORT, RawRecord
from pyrmq_core.protocol.messages.sysflag import TRANSACTION_MASK
from pyrmq_core.servers.broker.store.index import step_bounds
from pyrmq_core.servers.broker.store.index.entries import Message
from pyrmq_core.servers.broker.store.index.key_hashes import record_keys
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.scan.log_scan import Hole, LogEnd

ROLLED_BACK: Final = 0xC
# The weight of a record in a step is that of its properties, plus RECORD_WEIGHT, plus its size divided by LOG_PART. So
# a step reads at most 256 records or 1 MiB of the log.
RECORD_WEIGHT: Final = 128
LOG_PART: Final = 32


def unread_messages(store: MessageStore, start: int, end: int) -> Iterator[tuple[list[Message], int]]:
    """Yields the messages between two log offsets, a few at a time, each time with the offset after them."""
    messages: list[Message] = []
    weight = 0
    for part in store.records(start):
        if isinstance(part, Hole):
            start = part.end
            continue
        if isinstance(part, LogEnd) or part.commit_log_offset >= end:
            break
        weight += _weight(part)
        if weight > step_bounds.WEIGHT_AT_ONCE:
            yield messages, start
            messages, weight = [], _weight(part)
        start = part.commit_log_offset + part.store_size
        if not _is_rolled_back(part):
            messages.append(_message(part))
    yield messages, start


def next_with_keys(store: MessageStore, offset: int) -> Generator[None, None, int]:
    """Searches for the first record with keys. Returns its log offset, or the log's end if no record has keys.

    Yields between the steps of the search. `offset` is the start of the log, or a record's offset plus one for a search
    from the next record on.
    """
    start = offset if offset == store.start else offset - 1
    weight = 0
    for record in store.records(max(start, store.start)):
        if isinstance(record, RawRecord):
            if (
                record.commit_log_offset >= offset
                and not _is_rolled_back(record)
                and any(record_keys(record.properties))
            ):
                return record.commit_log_offset
            weight += _weight(record)
            if weight > step_bounds.WEIGHT_AT_ONCE:
                yield
                weight = 0
    return store.end


def _weight(record: RawRecord) -> int:
    return RECORD_WEIGHT + step_bounds.weight(record.properties) + record.store_size // LOG_PART


def _is_rolled_back(record: RawRecord) -> bool:
    return record.sys_flag & TRANSACTION_MASK == ROLLED_BACK


def _message(record: RawRecord) -> Message:
    properties = SHORT.pack(len(record.properties)) + record.properties
    return Message(decode_java_utf8(record.topic), properties, record.commit_log_offset, record.store_timestamp_ms)
