"""Properties of few layouts: the pairs are those of the search; strings that only look alike have no layout."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from pyrmq_core.columnar.arrays import is_utf8
from pyrmq_core.columnar.decoding import properties
from pyrmq_core.columnar.decoding.layouts import MOST_LAYOUTS, MOST_PAIRS, read_layouts
from pyrmq_core.columnar.decoding.properties import Pairs, read_pairs
from pyrmq_core.protocol.messages.properties import decode_properties

COUNT = 97
ALPHABET = "abcdefghij-_.:/ äß文\x7f"


def layouts_of(texts: list[bytes]) -> list[tuple[bytes, ...]] | None:
    result = read_layouts(pa.array(texts, pa.binary()))
    return None if result is None else [layout.names for layout in result.layouts]


def searched(texts: list[bytes], patch: pytest.MonkeyPatch) -> Pairs:
    """Returns the pairs as the search finds them."""
    with patch.context() as without:
        without.setattr(properties, "read_layouts", lambda _: None)
        pairs = read_pairs(pa.array(texts, pa.binary()))
    assert isinstance(pairs, Pairs)
    return pairs


def check_same(texts: list[bytes], patch: pytest.MonkeyPatch) -> None:
    """Compares the pairs with those of the search, and the map with the pairs of each string by itself."""
    layout_pairs, expected = read_pairs(pa.array(texts, pa.binary())), searched(texts, patch)
    layout_pairs.map().validate(full=True)
    assert layout_pairs.map().equals(expected.map())
    all_pairs = expected.map().to_pylist()
    assert [dict(pairs) for pairs in all_pairs] == [decode_properties(text.decode(errors="replace")) for text in texts]
    names = list(expected.known)
    for name in (*map(bytes.decode, names), "absent"):
        column = layout_pairs.column(name)
        column.validate(full=True)
        assert column.equals(expected.column(name)), name
    for accepted in (names[::2], names[1:2], []):
        chosen = layout_pairs.map(accepted.__contains__)
        chosen.validate(full=True)
        assert chosen.equals(expected.map(accepted.__contains__))
        assert chosen.to_pylist() == [[pair for pair in row if pair[0].encode() in accepted] for row in all_pairs]


def text(chance: random.Random, letters: int) -> str:
    return "".join(chance.choice(ALPHABET[:10]) for _ in range(letters))


def strings_of(chance: random.Random, layouts: int) -> list[bytes]:
    """Returns strings of that many layouts in any order, whose values have any size; some share their names."""
    names = [f"{text(chance, chance.randint(1, 12))}{number}" for number in range(9)]
    chosen = [chance.sample(names, chance.randint(0, 6)) for _ in range(layouts)]
    texts = []
    for _ in range(COUNT):
        pairs = [(name, text(chance, chance.randint(1, 30))) for name in chance.choice(chosen)]
        whole = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
        texts.append((whole[:-1] if chance.random() < 0.1 else whole).encode())
    return texts


@pytest.mark.parametrize("layouts", [1, 2, 5, MOST_LAYOUTS, 3 * MOST_LAYOUTS])
@pytest.mark.parametrize("seed", range(8))
def test_pairs_of_layouts_are_those_of_the_search(seed: int, layouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = strings_of(random.Random(100 * seed + layouts), layouts)
    assert (layouts_of(texts) is None) == (
        len({tuple(decode_properties(string.decode())) for string in texts} - {()}) > MOST_LAYOUTS
    )
    check_same(texts, monkeypatch)


@pytest.mark.parametrize("seed", range(60))
def test_one_changed_byte_among_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs are those of the search, for each byte that may change and for each change."""
    chance = random.Random(seed)
    texts = [string for string in strings_of(chance, 3) if string]
    row = chance.choice([0, 1, len(texts) - 1, chance.randrange(len(texts))])
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
FEW_LAYOUTS = {
    "values of any size": [text + b"more\x01%d\x02" % (number % 13) for number, text in enumerate(PLAIN)],
    "another name": [*PLAIN[:-1], PLAIN[-1].replace(b"TAGS", b"TAGX")],
    "a longer name": [*(b"KEYS\x01k%08d\x02" % number for number in range(COUNT - 1)), b"KEYSX\x01k00000000\x02"],
    "another order": [*PLAIN[:-1], b"KEYS\x01k1\x02UNIQ_KEY\x0100000000\x02TAGS\x01a\x02"],
    "a pair more": [*PLAIN[:-1], PLAIN[-1] + b"x\x01y\x02"],
    "no last separator": [text[:-1] for text in PLAIN],
    "one without a last separator": [*PLAIN[:-1], PLAIN[-1][:-1]],
    "some without a last separator, before empty strings": [b"", PLAIN[0][:-1], b"", b"", PLAIN[1][:-1], PLAIN[2], b""],
    "an empty string": [*PLAIN[:-1], b""],
    "no string": [b""] * COUNT,
    "one string": PLAIN[:1],
}
ODD = {
    "a separator in a value, and one less elsewhere": [
        *(text.replace(b"k1", b"k\x01", 1) for text in PLAIN[:1]),
        *PLAIN[1:-1],
        PLAIN[-1].replace(b"TAGS\x01", b"TAGS="),
    ],
    "an open string before a separator": [PLAIN[0][:-1], b"\x01" + PLAIN[1]],
    "a name twice": [text + b"KEYS\x01z\x02" for text in PLAIN],
    "an empty value": [text.replace(b"\x01a\x02", b"\x01\x02") for text in PLAIN],
    "an empty value of any size": [*PLAIN[:-1], b"UNIQ_KEY\x0100000000\x02KEYS\x01\x02TAGS\x01a\x02"],
    "an empty name": [*PLAIN[:-1], b"\x01v\x02"],
    "a zero byte": [*PLAIN[:-1], PLAIN[-1].replace(b"k", b"\x00")],
    "a zero byte for the last separator": [*PLAIN[:-1], PLAIN[-1][:-1] + b"\x00"],
    "a text without separators": [*PLAIN[:-1], b"text"],
    "too many pairs": [b"".join(b"n%d\x01v\x02" % n for n in range(MOST_PAIRS + 1))] * COUNT,
    "too many layouts": [b"n%d\x01v\x02" % (number % (MOST_LAYOUTS + 1)) for number in range(COUNT)],
    "too many layouts among many": [b"n%d\x01v\x02" % (number % (MOST_LAYOUTS + 1)) for number in range(1100)],
    "names that differ in a byte that is not looked at": [b"a%db%dc\x01v\x02" % (n % 10, n % 7) for n in range(COUNT)],
}


@pytest.mark.parametrize("kind", FEW_LAYOUTS)
def test_strings_of_few_layouts_are_read_by_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layouts_of(FEW_LAYOUTS[kind]) is not None
    check_same(FEW_LAYOUTS[kind], monkeypatch)


@pytest.mark.parametrize("kind", ODD)
def test_strings_that_only_look_alike_have_no_layout(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layouts_of(ODD[kind]) is None
    check_same(ODD[kind], monkeypatch)


def test_a_layout_names_its_pairs_and_their_ends() -> None:
    result = read_layouts(pa.array(PLAIN, pa.binary()))
    assert result is not None
    (layout,) = result.layouts
    assert layout.names == (b"UNIQ_KEY", b"KEYS", b"TAGS")
    assert layout.ends[0].tolist() == [8, 17, 22, 25, 30, 32]


def test_letters_beyond_ascii_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        f"größe\x01{ALPHABET[number % 5 + 10]}文\x02KEYS\x01{'ä' * (number % 7 + 1)}\x02".encode()
        for number in range(COUNT)
    ]
    check_same(texts, monkeypatch)


def test_a_letter_cut_between_two_strings_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = [b"K\x01\xc3", b"\xa4\x01v"]
    assert b"".join(cut).decode()
    assert not is_utf8(pa.array(cut, pa.binary()))
    assert is_utf8(pa.array(["ä".encode(), b""], pa.binary()))
    check_same([*PLAIN, *cut], monkeypatch)
