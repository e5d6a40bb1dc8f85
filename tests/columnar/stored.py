"""Pulls as brokers answer them, drawn at random: any valid record, and invalid ones."""

from __future__ import annotations

import random
from typing import Any, Final

from pyrmq_core import MessageQueue, PullStatus, RawPull
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD

QUEUES: Final = (
    MessageQueue("orders", "broker-a", 3),
    MessageQueue("orders", "broker-b", 0),
    MessageQueue("%übung", "broker-a", 3),
)
HOSTS: Final = ("10.0.0.1:5000", "192.168.255.254:65535", "[fd00::2]:10911", "[::1]:1")
NAMES: Final = ("UNIQ_KEY", "TAGS", "KEYS", "__SHARDINGKEY", "WAIT", "a", "a.long.name", "größe", "x\x00y", " ")
VALUES: Final = ("true", "TagA", "TagB", "x", "k1 k2", "wörter 文字", "\x00", "v" * 300)
TORN: Final = (
    b"\x01",
    b"\x02",
    b"a",
    b"TAGS",
    b"TAGS\x01TagA\x02",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2\x82",
    b"\x00",
    b"",
)


def record(offset: int, body: bytes = b"x", **fields: Any) -> bytes:
    """Returns a stored record with every field, changed by `fields`."""
    values: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": offset,
        "commit_log_offset": 1000 + offset,
        "body": body,
        "properties": f"UNIQ_KEY\x01ID{offset}\x02TAGS\x01tag{offset % 2}\x02KEYS\x01k v\x02__SHARDINGKEY\x01s\x02",
        "born_timestamp_ms": 1_700_000_000_123,
        "born_host": "10.0.0.1:5000",
        "store_timestamp_ms": 1_700_000_000_456,
        "store_host": "10.0.0.2:10911",
    }
    return encode_record(**values | fields)


def pull(start: int, *records: bytes, count: int | None = None, queue: MessageQueue = QUEUES[0]) -> RawPull:
    """Returns an answer to a pull at `start` with these records, of `count` messages."""
    following = start + (len(records) if count is None else count)
    return RawPull(queue, start, following, 0, following, PullStatus.FOUND, b"".join(records))


def batch_record(first: int, *items: BatchItem, **fields: Any) -> bytes:
    """Returns a record of a 5.x batch topic."""
    return record(first, encode_batch_body(items), properties="INNER_NUM\x01n\x02", sys_flag=BATCH_RECORD, **fields)


class Broker:
    """A broker that answers pulls at random; the same seed gives the same answers."""

    def __init__(self, seed: int, *, torn: float = 0.1, strange: float = 0.3) -> None:
        self._chance = random.Random(seed)
        self._torn = torn
        self._strange = strange
        self._shape = [*NAMES[:3], "WAIT"]

    def pulls(self, count: int, most_records: int) -> list[RawPull]:
        """Returns pulls one after another, a few of them empty; some clipped, as those of a batch topic are."""
        return [self._pull(self._chance.randrange(most_records + 1)) for _ in range(count)]

    def _pull(self, records: int) -> RawPull:
        chance = self._chance
        start = offset = chance.choice((0, 5, 10**12))
        parts = []
        for _ in range(records):
            part, messages = self._record(offset)
            parts.append(part)
            offset += messages
        if parts and self._seldom():
            start = chance.randrange(start, offset + 1)
        if parts and self._seldom():
            offset = chance.randrange(start, offset + 1)
        return RawPull(chance.choice(QUEUES), start, offset, 0, offset, PullStatus.FOUND, b"".join(parts))

    def _record(self, offset: int) -> tuple[bytes, int]:
        chance = self._chance
        body, fields = self._body(), self._fields()
        if self._seldom():
            items = [
                BatchItem(chance.randrange(9), self._body(), self._properties()) for _ in range(chance.randrange(5))
            ]
            return batch_record(offset, *items, **fields), len(items)
        if self._seldom():
            kind = chance.choice(list(CompressionType))
            body, fields = compress(body, kind), fields | {"sys_flag": kind.sys_flag}
        return record(offset, body, properties=self._properties(), **fields), 1

    def _fields(self) -> dict[str, Any]:
        chance = self._chance
        if not self._seldom():
            return {"flag": chance.randrange(3), "commit_log_offset": chance.getrandbits(40)}
        return {
            "topic": chance.choice(("orders", "", "a" * 128, "b" * 500, "ü")),
            "flag": chance.getrandbits(32) - 2**31,
            "reconsume_times": chance.randrange(20),
            "prepared_transaction_offset": chance.getrandbits(64) - 2**63,
            "commit_log_offset": chance.getrandbits(63),
            "born_host": chance.choice(HOSTS),
            "store_host": chance.choice(HOSTS),
            "born_timestamp_ms": chance.randrange(-(10**12), 10**15),
            "queue_id": chance.getrandbits(31),
        }

    def _body(self) -> bytes:
        chance = self._chance
        size = chance.choice((0, 1, 50, 50, 50, 700)) if self._seldom() else 50
        return chance.choice((b"\xc3\xa9", b"ab", b"\xff\x00")) * (size // 2) + b"z" * (size % 2)

    def _properties(self) -> bytes:
        chance = self._chance
        if chance.random() < self._torn:
            return b"".join(chance.choices(TORN, k=chance.randrange(12)))
        names = self._shape if not self._seldom() else chance.choices(NAMES, k=chance.choice((0, 1, 3, 60)))
        text = encode_properties({name: chance.choice(VALUES) for name in names}).encode()
        return text[:-1] if self._seldom() else text

    def _seldom(self) -> bool:
        return self._chance.random() < self._strange
