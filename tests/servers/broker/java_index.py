"""A plain copy of what Java's index does, record by record: store/index/IndexService.java, IndexFile.java (5.4.0)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyrmq_core.protocol.messages.properties import decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import RawRecord


def java_hash(text: str) -> int:
    """Returns IndexFile.indexKeyHashMethod of a text."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8) + low) % 2**32
    code -= 2**32 if code >= 2**31 else 0
    return 0 if code == -(2**31) else abs(code)


def java_keys(topic: str, properties: str) -> list[str]:
    """Returns the texts that IndexService.buildIndex puts for a record."""
    values = decode_properties(properties)
    keys = [f"{topic}#{values['UNIQ_KEY']}"] if "UNIQ_KEY" in values else []
    keys += [f"{topic}#{word}" for word in values.get("KEYS", "").split(" ") if word]
    return keys + ([f"{topic}#T#{values['TAGS']}"] if "TAGS" in values else [])


@dataclass
class JavaIndexFile:
    """One file as Java fills it."""

    slots: int
    entries: int
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used: int = 0
    count: int = 1
    data: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.data = bytearray(40 + 4 * self.slots + 20 * self.entries)

    def _int(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], signed=True)

    def put(self, key: str, offset: int, store_ms: int) -> None:
        slot_at = 40 + 4 * (java_hash(key) % self.slots)
        previous = self._int(slot_at)
        seconds = 0 if self.begin_ms <= 0 else min(max(0, (store_ms - self.begin_ms) // 1000), 2**31 - 1)
        at = 40 + 4 * self.slots + 20 * self.count
        self.data[at : at + 20] = b"".join(
            (java_hash(key).to_bytes(4), offset.to_bytes(8), seconds.to_bytes(4), previous.to_bytes(4))
        )
        self.data[slot_at : slot_at + 4] = self.count.to_bytes(4)
        if self.count <= 1:
            self.begin_offset, self.begin_ms = offset, store_ms
        self.used += previous == 0
        self.count += 1
        self.end_offset, self.end_ms = offset, store_ms

    def content(self) -> bytes:
        """Returns the file's bytes before its next entry."""
        fields = (self.begin_ms, self.end_ms, self.begin_offset, self.end_offset)
        header = b"".join([*(value.to_bytes(8, signed=True) for value in fields), self.used.to_bytes(4)])
        self.data[:40] = header + self.count.to_bytes(4)
        return bytes(self.data[: 40 + 4 * self.slots + 20 * self.count])

    def select(self, places: list[int], key: str, most: int, begin_ms: int, end_ms: int) -> None:
        number = self._int(40 + 4 * (java_hash(key) % self.slots))
        while number > 0 and len(places) < most:
            at = 40 + 4 * self.slots + 20 * number
            time_ms = self.begin_ms + 1000 * self._int(at + 12)
            if self._int(at) == java_hash(key) and begin_ms <= time_ms <= end_ms:
                places.append(int.from_bytes(self.data[at + 4 : at + 12]))
            if time_ms < begin_ms:
                break
            number = self._int(at + 16)


@dataclass
class JavaIndex:
    """All files as Java fills them."""

    slots: int
    entries: int
    files: list[JavaIndexFile] = field(default_factory=list)

    def build(self, records: Iterable[RawRecord]) -> JavaIndex:
        for record in records:
            if record.sys_flag & 0xC != 0xC:
                for key in java_keys(decode_java_utf8(record.topic), decode_java_utf8(record.properties)):
                    self._put(key, record.commit_log_offset, record.store_timestamp_ms)
        return self

    def _put(self, key: str, offset: int, store_ms: int) -> None:
        if not self.files or self.files[-1].count >= self.entries:
            new = JavaIndexFile(self.slots, self.entries)
            if self.files:
                last = self.files[-1]
                new.begin_ms, new.end_ms = last.end_ms, last.end_ms
                new.begin_offset, new.end_offset = last.end_offset, last.end_offset
            self.files.append(new)
        self.files[-1].put(key, offset, store_ms)

    def find(self, key: str, most: int, begin_ms: int, end_ms: int) -> list[int]:
        """Returns the offsets that IndexService.queryOffset finds, the newest first."""
        places: list[int] = []
        for file in reversed(self.files):
            begins, ends = file.begin_ms <= begin_ms <= file.end_ms, file.begin_ms <= end_ms <= file.end_ms
            if (begin_ms < file.begin_ms and end_ms > file.end_ms) or begins or ends:
                file.select(places, key, most, begin_ms, end_ms)
            if file.begin_ms < begin_ms or len(places) >= most:
                break
        return places

    def contents(self) -> list[bytes]:
        return [file.content() for file in self.files]
