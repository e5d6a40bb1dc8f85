"""The pictures beside others: their figures are those of the page, and a sitting's file is enough to draw them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.pictures.figures import FILE, JOBS, KINDS, SIZES, Bar, Chart, of_sitting, read, table, write
from benchmarks.support.growth import Sample, growths

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "performance.md").read_text()
CHARTS = read(FILE)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", CHARTS)
def test_a_picture_is_on_the_page_with_a_description(name: str) -> None:
    picture = DOCS / "pictures" / f"{name}.png"
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size < 80_000
    match = re.search(rf"!\[([^\]]+)\]\(pictures/{name}\.png\)", PAGE)
    assert match is not None
    assert len(match[1]) > 60


def test_the_table_beside_kafka_is_the_pages() -> None:
    lines = table(CHARTS["beside-kafka"])
    assert [line for line in lines if line not in PAGE.splitlines()] == []


def test_the_page_is_short_and_says_which_rows_it_is_about() -> None:
    assert len(PAGE.split()) <= 1800
    head = PAGE.partition("| |")[0]
    assert "Rows of users vary in length" in head
    assert "exactly one length" in head


def test_the_file_of_a_sitting_gives_every_bar(tmp_path: Path) -> None:
    rows = [{"name": "count", "ratios": {}}]
    for lengths, first in (("", 0.126), ("-equal", 0.5)):
        sides = ("plain", "batch", "unix", "unix-batch")
        ratios = {side: [number + first, 0.1, 9.0, 4] for number, side in enumerate(sides)}
        jobs = {job for job, *_ in JOBS.values()}
        rows += [{"name": f"{job}-{body}{lengths}", "ratios": ratios} for job in jobs for body in SIZES]
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps({"rows": rows}))
    bars = of_sitting(file)
    assert len(bars) == len(JOBS) * len(SIZES) * len(KINDS) == len(CHARTS["beside-kafka"].bars)
    assert bars[:2] == (Bar("write, 100 B", "plain topic", 0.13, 0.5), Bar("write, 100 B", "batch topic", 1.13, 1.5))
    assert Bar("the same, with settings, 1 KiB", "plain topic", 2.13, 2.5) in bars
    charts = {"one": Chart("a title", "an axis", bars)}
    write(tmp_path / "figures.json", charts)
    assert read(tmp_path / "figures.json") == charts


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.pictures.bars import draw  # loads matplotlib, which takes a second

    file = tmp_path / "one.png"
    draw(Chart("a title", "an axis", (Bar("a", "x", 0.5, 0.6), Bar("b", "y", 1.5, 1.2))), file)
    assert file.read_bytes().startswith(PNG)


def test_the_picture_of_a_long_life_is_on_its_page_with_the_true_number_of_messages() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.pictures import long_life

    page = (DOCS / "sizes.md").read_text()
    match = re.search(rf"!\[([^\]]+)\]\(pictures/{long_life.NAME}\.png\)", page)
    assert match is not None
    assert len(match[1]) > 60
    picture = DOCS / "pictures" / f"{long_life.NAME}.png"
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size < 80_000
    samples = long_life.read()
    millions = max(sample.messages for sample in samples) / 1_000_000
    assert f"{millions:.1f} million messages" in " ".join(page.split())
    lines = [str(growth) for growth in growths(samples)]
    assert [growth for growth in growths(samples) if growth.is_too_much] == []
    assert [line for line in re.findall(r"^    (\w.* in all)$", page, re.MULTILINE) if line not in lines] == []
    assert len(re.findall(r"^    \w.* in all$", page, re.MULTILINE)) == len(lines)


def test_the_picture_of_a_long_life_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.pictures import long_life

    file = tmp_path / "one.png"
    figures = dict.fromkeys((name for _, name, _ in long_life.PANELS), 5.0)
    samples = [Sample(process, 1_000_000 * at, figures) for process in long_life.COLORS for at in range(10)]
    long_life.draw(samples, file)
    assert file.read_bytes().startswith(PNG)
