"""Fuzzing that coverage guides: it finds what chance does not, and says how much it tried."""

from pathlib import Path

import pytest

from tests.hostile.guided_fuzzing import inputs_of, run
from tests.support.maven import ApacheUnavailable


def tried(directory: Path, name: str) -> tuple[int, str]:
    options = ("-seed=1", "-runs=200000", "-print_final_stats=1")
    try:
        return run(directory, "tests.hostile.planted_parsers", name, (b"f",), *options)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("an error without a name", "KeyError: b'fuz"),
        ("work for ever", r" s"),
        ("memory", "bytes of memory"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, name: str, words: str) -> None:
    status, output = tried(tmp_path, name)
    assert status != 0
    assert words in output
    (kept,) = (tmp_path / name.replace(" ", "-")).glob("crash-*")
    assert kept.read_bytes().startswith(b"fuz")


def test_a_parser_without_fault_ends_well(tmp_path: Path) -> None:
    status, output = tried(tmp_path, "no fault")
    assert (status, inputs_of(output)) == (0, 200_000)
