"""`python -m benchmarks.pictures [--varied kafka.json --equal kafka.json]` draws `docs/pictures/beside-kafka.png`.

The figures are those of `figures.json` beside this file. With `--varied` and `--equal`, those of two sittings of
`benchmarks.kafka` are stored there first, of rows that vary in length and of rows of one length, and the table for
`docs/performance.md` is printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.pictures.bars import draw
from benchmarks.pictures.figures import FILE, Chart, of_sittings, read, table, write

DIRECTORY = Path(__file__).parent.parent.parent / "docs" / "pictures"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    for lengths in ("varied", "equal"):
        parser.add_argument(f"--{lengths}", type=Path, metavar="FILE", help="kafka.json of a sitting with such rows")
    parser.add_argument("--output", type=Path, default=DIRECTORY, help="a directory for the pictures")
    options = parser.parse_args()
    charts = read(FILE)
    if options.varied is not None and options.equal is not None:
        kafka = charts["beside-kafka"]
        charts["beside-kafka"] = Chart(kafka.title, kafka.axis, of_sittings(options.varied, options.equal))
        write(FILE, charts)
        print("\n".join(table(charts["beside-kafka"])))
    for name, chart in charts.items():
        draw(chart, options.output / f"{name}.png")
        print(options.output / f"{name}.png")


if __name__ == "__main__":
    main()
