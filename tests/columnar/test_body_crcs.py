"""CRCs of many bodies: every wrong bit is found, for every length and place, by either library."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from pyrmq_core import TagFilter
from pyrmq_core.columnar import decode_records, schema_of
from pyrmq_core.columnar.decoding import records as columns_of_records
from pyrmq_core.columnar.decoding.records import BODIES_AT_ONCE, SHORT_BODY_BYTES, have_crcs
from pyrmq_core.errors import BodyDamaged
from pyrmq_core.protocol.messages.record import CRC_MASK
from tests.columnar.stored import pull, record

pytestmark = pytest.mark.usefixtures("each_decoder")

BEFORE = 88  # bytes of a record before its body
LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "one byte": lambda chance: 1,
    "of one length": lambda chance: 100,
    "the longest short ones": lambda chance: SHORT_BODY_BYTES,
    "long": lambda chance: SHORT_BODY_BYTES + 1,
    "several short": lambda chance: chance.randint(1, 250),
    "some of each": lambda chance: chance.choice((40, 40, 40, 70, 2000, chance.randint(1, 3000))),
}


@pytest.fixture(autouse=True, params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares with either library, where both are installed."""
    if request.param == "zlib":
        monkeypatch.setattr(columns_of_records, "crc32", zlib.crc32)
    else:
        assert columns_of_records.crc32 is pytest.importorskip("isal.isal_zlib").crc32


class Bodies:
    """Bodies between other bytes, with their CRCs."""

    def __init__(self, chance: random.Random, lengths: list[int]) -> None:
        parts, place = [], 0
        self.starts = np.zeros(len(lengths), np.int64)
        for row, length in enumerate(lengths):
            parts.append(chance.randbytes(BEFORE + chance.randint(0, 9) + length))
            place += len(parts[-1])
            self.starts[row] = place - length
        self.ends = self.starts + np.array(lengths, np.int64)
        self.data = bytearray(b"".join(parts))
        bodies = [self.data[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]
        self.crcs = np.array([zlib.crc32(body) & CRC_MASK for body in bodies], np.int64)

    def match(self) -> bool:
        return have_crcs(np.frombuffer(bytes(self.data), np.uint8), self.starts, self.ends, self.crcs)


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("count", [1, BODIES_AT_ONCE, 2 * BODIES_AT_ONCE + 77])
def test_one_wrong_bit_anywhere_is_found(kind: str, count: int) -> None:
    chance = random.Random(f"{kind} {count}")
    bodies = Bodies(chance, [LENGTHS[kind](chance) for _ in range(count)])
    assert bodies.match()
    for _ in range(30):
        row = chance.choice((0, count - 1, chance.randrange(count)))
        byte, bit = chance.randrange(int(bodies.starts[row]), int(bodies.ends[row])), 1 << chance.randrange(8)
        bodies.data[byte] ^= bit
        assert not bodies.match(), (row, byte)
        bodies.data[byte] ^= bit
        bodies.crcs[row] ^= 1 << (flipped := chance.randrange(31))
        assert not bodies.match(), row
        bodies.crcs[row] ^= 1 << flipped
    assert bodies.match()


def test_bytes_around_a_body_do_not_count() -> None:
    chance = random.Random(3)
    bodies = Bodies(chance, [100] * BODIES_AT_ONCE)
    bodies.data[int(bodies.starts[9]) - 1] ^= 255
    bodies.data[int(bodies.ends[9])] ^= 255
    assert bodies.match()


@pytest.mark.parametrize("crc", [-1, -(1 << 31)])
def test_a_negative_crc_matches_nothing(crc: int) -> None:
    """A record has 32 bits for its CRC and no sender sets the first; a broker that does has damaged it."""
    bodies = Bodies(random.Random(4), [100] * BODIES_AT_ONCE)
    bodies.crcs[3] = crc if crc == -1 else bodies.crcs[3] + crc
    assert not bodies.match()


@pytest.mark.parametrize("length", [100, 2000])
def test_a_damaged_body_among_many_is_named(length: int) -> None:
    records = [record(number, b"%0*d" % (length, number)) for number in range(BODIES_AT_ONCE + 1)]
    columns = schema_of(["queueOffset", "body"])
    assert decode_records([pull(0, *records)], columns).num_rows == len(records)
    records[200] = records[200].replace(b"%0*d" % (length, 200), b"%0*d" % (length, 201))
    for tags in (TagFilter(), TagFilter.parse("tag0")):
        with pytest.raises(BodyDamaged, match="at offset 200 of "):
            decode_records([pull(0, *records)], columns, tags=tags)


def test_empty_bodies_are_passed_over_among_many() -> None:
    records = [record(number, b"" if number % 3 else b"%08d" % number) for number in range(2 * BODIES_AT_ONCE)]
    assert decode_records([pull(0, *records)], schema_of(["body"])).num_rows == len(records)
