"""The rows of benchmarks: seeded, of lengths that vary, and the same ones for every client."""

import statistics
import struct

import pytest

from benchmarks.support import raw
from benchmarks.support.sends import message
from benchmarks.support.user_rows import CASES, CYCLE, EQUAL, LARGE, SMALL, Case, lines_of, pulls_of
from pyrmq_core import decode

EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
VARYING = [case for case in CASES.values() if not case.equal]


@pytest.mark.parametrize("case", [SMALL, LARGE], ids=lambda case: case.name)
def test_lengths_are_log_normal_around_the_mean(case: Case) -> None:
    lengths = [len(case.body(number)) for number in range(CYCLE)]
    assert statistics.mean(lengths) == pytest.approx(case.body_bytes, rel=0.05)
    assert statistics.median(lengths) < 0.95 * statistics.mean(lengths)
    assert min(lengths) < case.body_bytes / 4
    assert 3 * case.body_bytes < max(lengths) < 4 * case.body_bytes


@pytest.mark.parametrize("case", VARYING, ids=lambda case: case.name)
def test_keys_tags_and_properties_vary(case: Case) -> None:
    numbers = range(1000)
    assert len({len(case.key(number)) for number in numbers}) > 8
    assert len({case.key(number) for number in numbers}) == 1000
    assert len({case.tag(number) for number in numbers}) == 5
    assert sum(bool(case.properties(number)) for number in numbers) == 200


def test_equal_rows_have_one_length() -> None:
    assert {len(EQUAL.property_text(number)) + len(EQUAL.body(number)) for number in (0, 7, 1999)} == {182}


@EACH
def test_every_way_has_the_same_rows(case: Case) -> None:
    columns = case.record_batch(40, 20).to_pydict()
    for place, number in enumerate(range(20, 60)):
        sent = message("t", number, case)
        assert (sent.body, sent.keys, sent.tags) == (case.body(number), case.key(number), case.tag(number))
        assert (columns["body"][place], columns["keys"][place], columns["tags"][place]) == (
            case.body(number),
            case.key(number),
            case.tag(number),
        )
        assert sent.properties == case.properties(number) == dict(columns.get("properties", [[]] * 40)[place])
    pulled = [row for pull in pulls_of(60, case) for row in decode(pull)]
    assert [(row.body, row.keys, row.user_properties) for row in pulled] == [
        (case.body(number), case.key(number), case.properties(number)) for number in range(60)
    ]


@EACH
def test_raw_batches_hold_the_same_rows(case: Case) -> None:
    batch = raw.batch_body(10, case)
    place = 0
    for number in range(10):
        size, *_, body_bytes = struct.unpack_from(">iiiii", batch, place)
        assert batch[place + 20 : place + 20 + body_bytes] == case.body(number)
        assert batch[place + 22 + body_bytes : place + size].decode() == case.property_text(number)
        place += size
    assert place == len(batch)


@EACH
def test_programs_in_other_languages_get_the_same_rows(case: Case) -> None:
    with lines_of(case) as file:
        lines = [line.split("\t") for line in file.read_text().split("\n")]
    assert len(lines) == CYCLE
    for number in (0, 1, 5, CYCLE + 3):
        head, first, tag, region, body = lines[number % CYCLE]
        assert f"{head}{int(first) + number}" == case.key(number)
        assert (tag, body.encode()) == (case.tag(number), case.body(number))
        assert region == case.properties(number).get("region", "")
