"""CRCs of many bodies together: the verdict is that of the loop, for every length, bit and place."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from pyrmq_core import TagFilter
from pyrmq_core.columnar import decode_records, schema_of
from pyrmq_core.columnar.decoding import body_crcs
from pyrmq_core.columnar.decoding.body_crcs import FEWEST_TOGETHER, LONGEST_TOGETHER, all_match, match_one_by_one
from pyrmq_core.errors import BodyDamaged
from pyrmq_core.protocol.messages.record import CRC_MASK
from tests.columnar.stored import pull, record

BEFORE = 88  # bytes of a record before its body
LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "one byte": lambda chance: 1,
    "a word": lambda chance: 8,
    "not a whole word": lambda chance: 100,
    "within one word": lambda chance: chance.randint(97, 104),
    "folded": lambda chance: 300,
    "the longest": lambda chance: LONGEST_TOGETHER,
    "too long": lambda chance: LONGEST_TOGETHER + 1,
    "several short": lambda chance: chance.randint(1, 250),
    "some of each": lambda chance: chance.choice((40, 40, 40, 70, 2000, chance.randint(1, 3000))),
}


@pytest.fixture(autouse=True, params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares with either library, where both are installed; only without isal are long bodies compared together."""
    if request.param == "zlib":
        monkeypatch.setattr(body_crcs, "crc32", zlib.crc32)
        monkeypatch.setattr(body_crcs, "longest_together", LONGEST_TOGETHER)
    else:
        assert body_crcs.crc32 is pytest.importorskip("isal.isal_zlib").crc32


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

    def verdicts(self) -> tuple[bool, bool]:
        octets = np.frombuffer(bytes(self.data), np.uint8)
        args = octets, self.starts, self.ends, self.crcs
        return all_match(*args), match_one_by_one(*args)


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("count", [1, FEWEST_TOGETHER - 1, FEWEST_TOGETHER, 2 * FEWEST_TOGETHER + 77])
def test_one_wrong_bit_anywhere_is_found(kind: str, count: int) -> None:
    chance = random.Random(f"{kind} {count}")
    found = Bodies(chance, [LENGTHS[kind](chance) for _ in range(count)])
    assert found.verdicts() == (True, True)
    for _ in range(30):
        row = chance.choice((0, count - 1, chance.randrange(count)))
        place, bit = chance.randrange(int(found.starts[row]), int(found.ends[row])), 1 << chance.randrange(8)
        found.data[place] ^= bit
        assert found.verdicts() == (False, False), (row, place)
        found.data[place] ^= bit
        found.crcs[row] ^= 1 << (flipped := chance.randrange(31))
        assert found.verdicts() == (False, False), row
        found.crcs[row] ^= 1 << flipped
    assert found.verdicts() == (True, True)


@pytest.mark.parametrize("length", [100, 300])
def test_two_wrong_bodies_do_not_undo_each_other(length: int) -> None:
    """Two bodies with the same wrong bit, and two that have changed places, are found."""
    chance = random.Random(length)
    found = Bodies(chance, [length] * (FEWEST_TOGETHER + 10))
    for first, second in ((0, 1), (0, 32), (5, 500), (511, 512)):
        for row in (first, second):
            found.data[int(found.starts[row]) + 7] ^= 4
        assert found.verdicts() == (False, False)
        for row in (first, second):
            found.data[int(found.starts[row]) + 7] ^= 4
        one, other = (slice(int(found.starts[row]), int(found.ends[row])) for row in (first, second))
        found.data[one], found.data[other] = found.data[other], found.data[one]
        assert found.verdicts() == (False, False)
        found.data[one], found.data[other] = found.data[other], found.data[one]
    assert found.verdicts() == (True, True)


def test_bytes_around_a_body_do_not_count() -> None:
    chance = random.Random(3)
    found = Bodies(chance, [100] * FEWEST_TOGETHER)
    found.data[int(found.starts[9]) - 1] ^= 255
    found.data[int(found.ends[9])] ^= 255
    assert found.verdicts() == (True, True)


@pytest.mark.parametrize("crc", [-1, -(1 << 31)])
def test_a_negative_crc_matches_nothing(crc: int) -> None:
    """A record has 32 bits for its CRC and no sender sets the first; a broker that does has damaged it."""
    found = Bodies(random.Random(4), [100] * FEWEST_TOGETHER)
    found.crcs[3] = crc if crc == -1 else found.crcs[3] + crc
    assert found.verdicts() == (False, False)


def test_a_damaged_body_among_many_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns compare them together; the error names the one."""
    records = [record(number, b"%0100d" % number) for number in range(FEWEST_TOGETHER + 1)]
    columns = schema_of(["queueOffset", "body"])
    with monkeypatch.context() as patch:
        patch.setattr(body_crcs, "match_one_by_one", None)  # it is not needed
        assert decode_records([pull(0, *records)], columns).num_rows == len(records)
    records[400] = records[400].replace(b"%0100d" % 400, b"%0100d" % 401)
    with pytest.raises(BodyDamaged, match="at offset 400 of "):
        decode_records([pull(0, *records)], columns)


def test_a_damaged_body_among_long_ones_of_one_length_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared in their column, unless a tag leaves some out of it."""
    records = [record(number, b"%02000d" % number) for number in range(70)]
    columns = schema_of(["queueOffset", "body"])
    with monkeypatch.context() as patch:
        patch.setattr(body_crcs, "all_match", None)  # it is not needed
        assert decode_records([pull(0, *records)], columns)["body"].to_pylist()[69] == b"%02000d" % 69
    records[41] = records[41].replace(b"%02000d" % 41, b"%02000d" % 14)
    for tags in (TagFilter(), TagFilter.parse("tag0")):
        with pytest.raises(BodyDamaged, match="at offset 41 of "):
            decode_records([pull(0, *records)], columns, tags=tags)


def test_empty_bodies_are_passed_over_among_many() -> None:
    records = [record(number, b"" if number % 3 else b"%08d" % number) for number in range(2 * FEWEST_TOGETHER)]
    assert decode_records([pull(0, *records)], schema_of(["body"])).num_rows == len(records)
