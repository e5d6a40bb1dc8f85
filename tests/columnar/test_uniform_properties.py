"""Properties of one layout: the pairs are those of the search; strings that only look alike have no layout."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pyrmq_core.columnar.arrays import byte_view, is_utf8, offsets_of
from pyrmq_core.columnar.decoding import properties, uniform_properties
from pyrmq_core.columnar.decoding.properties import Pairs, read_pairs
from pyrmq_core.columnar.decoding.uniform_properties import (
    MOST_PAIRS,
    Layout,
    UniformPairs,
    find_layout,
    find_uniform_pairs,
)

FEWEST = 256
COUNT = FEWEST + 41
ALPHABET = "abcdefghij-_.:/ äß文\x7f"


@pytest.fixture(autouse=True)
def fewer_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer strings than pay, which are the same work for the test."""
    monkeypatch.setattr(uniform_properties, "FEWEST_OF_ONE_LAYOUT", FEWEST)
    monkeypatch.setattr(uniform_properties, "FEWEST_OF_ONE_SIZE", FEWEST)


def layout_of(texts: list[bytes]) -> Layout | None:
    strings = pa.array(texts, pa.binary())
    bounds = offsets_of(strings)
    return find_layout(byte_view(strings)[: bounds[-1]], bounds)


def searched(texts: list[bytes], patch: pytest.MonkeyPatch) -> Pairs:
    """Returns the pairs as the search finds them."""
    with patch.context() as without:
        without.setattr(properties, "find_layout", lambda *_: None)
        without.setattr(properties, "find_uniform_pairs", lambda _: None)
        found = read_pairs(pa.array(texts, pa.binary()))
    assert isinstance(found, Pairs)
    return found


def check_same(texts: list[bytes], patch: pytest.MonkeyPatch) -> None:
    found, expected = read_pairs(pa.array(texts, pa.binary())), searched(texts, patch)
    assert found.map().equals(expected.map())
    all_pairs = expected.map().to_pylist()
    names = list(found.values if isinstance(found, UniformPairs) else found.known)
    assert names == list(expected.known)
    for name in (*map(bytes.decode, names), "absent"):
        assert found.column(name).equals(expected.column(name)), name
    found.map().validate(full=True)
    for accepted in (names[::2], names[1:2], []):
        chosen = found.map(accepted.__contains__)
        chosen.validate(full=True)
        assert chosen.equals(expected.map(accepted.__contains__))
        assert chosen.to_pylist() == [[pair for pair in row if pair[0].encode() in accepted] for row in all_pairs]


def text(chance: random.Random, letters: int) -> str:
    return "".join(chance.choice(ALPHABET[:10]) for _ in range(letters))


def strings_of(chance: random.Random, pairs: int, varying: int | None) -> list[bytes]:
    """Returns strings of one layout; the value of the pair `varying` has any size."""
    names = [f"{text(chance, chance.randint(1, 12))}{number}" for number in range(pairs)]
    sizes = [chance.randint(1, 40) for _ in names]
    found = []
    for _ in range(COUNT):
        values = [text(chance, chance.randint(1, 30) if n == varying else size) for n, size in enumerate(sizes)]
        found.append("".join(f"{name}\x01{value}\x02" for name, value in zip(names, values, strict=True)).encode())
    return found


@pytest.mark.parametrize("seed", range(12))
def test_pairs_of_one_layout_are_those_of_the_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    pairs = chance.randint(1, 8)
    texts = strings_of(chance, pairs, chance.choice([None, *range(pairs)]))
    assert layout_of(texts) is not None
    check_same(texts, monkeypatch)


@pytest.mark.parametrize("seed", range(40))
def test_one_changed_byte_among_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs are those of the search, for each byte that may change and for each change."""
    chance = random.Random(seed)
    texts = strings_of(chance, 3, chance.choice([None, 0, 1, 2]))
    row = chance.choice([0, 1, COUNT - 1, chance.randrange(COUNT)])
    changed = bytearray(texts[row])
    change = chance.choice(["set", "delete", "insert"])
    place = chance.randrange(len(changed))
    byte = chance.choice([0, 1, 2, 65, 255])
    if change == "set":
        changed[place] = byte
    elif change == "delete":
        del changed[place]
    else:
        changed.insert(place, byte)
    texts[row] = bytes(changed)
    check_same(texts, monkeypatch)


PLAIN = [b"UNIQ_KEY\x01%08d\x02KEYS\x01k%d\x02TAGS\x01a\x02" % (number, number) for number in range(COUNT)]
ODD = {
    "two values of any size": [text + b"more\x01%d\x02" % (number % 13) for number, text in enumerate(PLAIN)],
    "another name": [*PLAIN[:-1], PLAIN[-1].replace(b"TAGS", b"TAGX")],
    "a longer name": [*(b"KEYS\x01k%08d\x02" % number for number in range(COUNT - 1)), b"KEYSX\x01k00000000\x02"],
    "another order": [*PLAIN[:-1], b"KEYS\x01k1\x02UNIQ_KEY\x0100000000\x02TAGS\x01a\x02"],
    "a pair more": [*PLAIN[:-1], PLAIN[-1] + b"x\x01y\x02"],
    "a separator in a value, and one less elsewhere": [
        *(text.replace(b"k1", b"k\x01", 1) for text in PLAIN[:1]),
        *PLAIN[1:-1],
        PLAIN[-1].replace(b"TAGS\x01", b"TAGS="),
    ],
    "no last separator": [text[:-1] for text in PLAIN],
    "one without a last separator": [*PLAIN[:-1], PLAIN[-1][:-1]],
    "a name twice": [text + b"KEYS\x01z\x02" for text in PLAIN],
    "an empty value": [text.replace(b"\x01a\x02", b"\x01\x02") for text in PLAIN],
    "an empty value of any size": [*PLAIN[:-1], b"UNIQ_KEY\x0100000000\x02KEYS\x01\x02TAGS\x01a\x02"],
    "an empty string": [*PLAIN[:-1], b""],
    "no string": [b""] * COUNT,
    "a zero byte": [*PLAIN[:-1], PLAIN[-1].replace(b"k", b"\x00")],
    "too many pairs": [b"".join(b"n%d\x01v\x02" % n for n in range(MOST_PAIRS + 1))] * COUNT,
    "too few strings": PLAIN[: FEWEST - 1],
}


@pytest.mark.parametrize("kind", ODD)
def test_strings_that_only_look_alike_have_no_layout(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "two values of any size":
        assert layout_of(PLAIN) is not None
    assert layout_of(ODD[kind]) is None
    check_same(ODD[kind], monkeypatch)


UNIFORM = [b"UNIQ_KEY\x01%08d\x02KEYS\x01k%04d\x02TAGS\x01a\x02" % (number, number) for number in range(COUNT)]
ODD_OF_ONE_SIZE = {
    "another name": UNIFORM[-1].replace(b"TAGS", b"TAGX"),
    "another first name": UNIFORM[-1].replace(b"UNIQ_KEY", b"UNIQ_KEX"),
    "another order": b"KEYS\x01k0001\x02UNIQ_KEY\x0100000000\x02TAGS\x01a\x02",
    "a longer value, and a shorter one": b"UNIQ_KEY\x01%09d\x02KEYS\x01k001\x02TAGS\x01a\x02" % 1,
    "a separator in a value": UNIFORM[-1].replace(b"k0", b"k\x01"),
    "a pair in a value": UNIFORM[-1].replace(b"\x01k", b"\x02\x01"),
    "no last separator": UNIFORM[-1][:-1] + b"x",
    "the last separator elsewhere": UNIFORM[-1][:-1].replace(b"k0", b"k\x02") + b"x",
    "a zero byte": UNIFORM[-1].replace(b"k", b"\x00"),
}


@pytest.mark.parametrize("row", [0, 1, COUNT - 1])
@pytest.mark.parametrize("kind", ODD_OF_ONE_SIZE)
def test_one_string_of_the_same_size_that_differs(kind: str, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list(UNIFORM)
    assert find_uniform_pairs(pa.array(texts, pa.binary())) is not None
    texts[row] = ODD_OF_ONE_SIZE[kind]
    assert len(texts[row]) == len(UNIFORM[0])
    assert find_uniform_pairs(pa.array(texts, pa.binary())) is None
    check_same(texts, monkeypatch)


def test_a_layout_names_its_pairs_and_their_bounds() -> None:
    found = layout_of(PLAIN)
    assert found is not None
    assert found.names == (b"UNIQ_KEY", b"KEYS", b"TAGS")
    assert found.bounds[:3].tolist() == [[0, 8, 9, 17], [18, 22, 23, 25], [26, 30, 31, 32]]
    assert found.bounds.dtype == np.int32


def test_letters_beyond_ascii_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        f"größe\x01{ALPHABET[number % 5 + 10]}文\x02KEYS\x01{'ä' * (number % 7 + 1)}\x02".encode()
        for number in range(COUNT)
    ]
    check_same(texts, monkeypatch)


@pytest.mark.parametrize("pairs", [1, 2, 5])
@pytest.mark.parametrize("count", [FEWEST, COUNT, 2 * FEWEST, 1000])
def test_even_values_beyond_ascii_have_their_bounds_for_every_count(
    pairs: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        "".join(f"größe{pair}\x01{ALPHABET[(number + pair) % 15]}{'ä文'[:pair]}\x02" for pair in range(pairs)).encode()
        for number in range(count)
    ]
    assert isinstance(read_pairs(pa.array(texts, pa.binary())), UniformPairs)
    check_same(texts, monkeypatch)


def test_a_letter_cut_between_two_strings_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = [b"K\x01\xc3", b"\xa4\x01v"]
    assert b"".join(cut).decode()
    assert not is_utf8(pa.array(cut, pa.binary()))
    assert is_utf8(pa.array(["ä".encode(), b""], pa.binary()))
    check_same([*UNIFORM, *cut], monkeypatch)
