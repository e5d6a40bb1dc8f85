"""Tables of one long value: its column is folded, and the other rows stay lines of a table."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pyrmq_core.tools.cli.drawn_tables import folded_widths
from pyrmq_core.tools.cli.tables import text_of

LONG = "a-group-whose-name-has-44-characters-in-all."


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def group(name: str) -> dict[str, object]:
    return {"group": name, "members": 12, "type": "push, clustering", "lag": 1234, "topics": f"{name}-1 and 3 more"}


@pytest.mark.parametrize("name", [LONG, "日本" * 11])
def test_a_long_value_folds_its_column(name: str) -> None:
    rows = [group(name), *(group(f"group-{number}") for number in range(19))]
    lines = text_of(rows, rows[0], as_json=False).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) < 30
    assert lines[0].split() == list(rows[0])
    if name.isascii():  # else a character is two columns
        assert "".join(line[: lines[0].index("members")].strip() for line in lines[1:4]) == name
    assert "".join(lines[-1].split()) == "group-1812push,clustering1234group-18-1and3more"


def test_no_number_is_folded() -> None:
    rows = [{"text": LONG, "number": 10**50, "other": LONG}]
    assert str(10**50) in text_of(rows, rows[0], as_json=False)


@pytest.mark.parametrize(
    ("widths", "least", "room", "fitted"),
    [
        ([10, 44, 8], [10, 16, 8], 40, [10, 22, 8]),
        ([30, 44], [16, 16], 50, [25, 25]),
        ([10, 44], [10, 16], 25, []),
        ([5, 5], [5, 5], 10, [5, 5]),
    ],
)
def test_the_widest_columns_give_way(widths: list[int], least: list[int], room: int, fitted: list[int]) -> None:
    assert folded_widths(widths, least, room) == fitted
