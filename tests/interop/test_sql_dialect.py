"""Our SQL92 against RocketMQ's own filter, over random expressions and properties: what is refused, and what passes."""

from random import Random

import pytest

from tests.support.apache import VERSIONS
from tests.support.maven import ApacheUnavailable
from tests.support.sql_cases import java_results, our_result, random_case

CASES = 2_000
SOAKED_CASES = 100_000


@pytest.mark.parametrize("version", VERSIONS)
def test_random_expressions(version: str) -> None:
    compare(version, seed=1, count=CASES)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", [Random().randrange(1_000_000)])
def test_many_random_expressions(version: str, seed: int) -> None:
    compare(version, seed=seed, count=SOAKED_CASES)


def compare(version: str, *, seed: int, count: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown when it fails, and by `make soak`
    random = Random(seed)
    cases = [random_case(random) for _ in range(count)]
    try:
        results = java_results(version, cases)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    expected = [letters and "".join("T" if letter == "T" else "-" for letter in letters) for letters in results]
    assert 0.3 * count < results.count(None) < 0.6 * count
    assert all("".join(filter(None, results)).count(letter) > count / 10 for letter in "TFNX")
    differences = [
        f"{case}: RocketMQ {letters}, ours {ours}"
        for case, wanted, letters in zip(cases, expected, results, strict=True)
        if (ours := our_result(case, text_tests=version.startswith("5"))) != wanted
    ]
    assert differences == []
