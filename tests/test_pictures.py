"""The pictures beside others: their figures are those of the page, and a sitting's file is enough to draw them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.pictures.figures import FILE, JOBS, KINDS, SIZES, Bar, Chart, of_sitting, read, table, write

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "performance.md").read_text()
CHARTS = read(FILE)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", CHARTS)
def test_a_picture_is_on_the_page_with_a_description(name: str) -> None:
    picture = DOCS / "pictures" / f"{name}.png"
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size < 60_000
    found = re.search(rf"!\[([^\]]+)\]\(pictures/{name}\.png\)", PAGE)
    assert found is not None
    assert len(found[1]) > 60


@pytest.mark.parametrize("name", CHARTS)
def test_every_figure_is_in_a_table_of_the_page(name: str) -> None:
    assert [str(bar) for bar in CHARTS[name].bars if str(bar) not in PAGE] == []


def test_the_table_beside_kafka_is_the_pages() -> None:
    lines = table(CHARTS["beside-kafka"])
    assert [line for line in lines if line not in PAGE.splitlines()] == []


def test_a_sittings_file_gives_every_bar(tmp_path: Path) -> None:
    ratios = {kind: [number + 0.123, 0.5, 2.0, 4] for number, kind in enumerate(KINDS)}
    rows = [{"name": f"{job}-{body}", "ratios": ratios} for job in JOBS for body in SIZES]
    sitting = tmp_path / "kafka.json"
    sitting.write_text(json.dumps({"rows": [{"name": "count", "ratios": {}}, *rows]}))
    bars = of_sitting(sitting)
    assert len(bars) == len(CHARTS["beside-kafka"].bars)
    assert bars[:2] == (
        Bar("write, 100 B", "plain topic", 0.12, 0.5, 2.0),
        Bar("write, 100 B", "batch topic", 1.12, 0.5, 2.0),
    )
    charts = {"one": Chart("a title", "an axis", bars)}
    write(tmp_path / "figures.json", charts)
    assert read(tmp_path / "figures.json") == charts


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.pictures.bars import draw  # loads matplotlib, which takes a second

    file = tmp_path / "one.png"
    draw(Chart("a title", "an axis", (Bar("a", "x", 0.5, 0.4, 3.0), Bar("b", "y", 1.5, 1.2, 1.6))), file)
    assert file.read_bytes().startswith(PNG)
