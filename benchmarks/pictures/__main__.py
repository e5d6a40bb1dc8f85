"""`python -m benchmarks.pictures [--sitting kafka.json]` draws `beside-kafka.png` and `long-life.png`.

The figures are those of `figures.json` and `long_life.json` beside this file. With `--sitting`, those of a sitting of
`benchmarks.kafka` are stored there first, and the table for `docs/performance.md` is printed. `long_life.json` is what
`python -m benchmarks.long_life --output` wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.pictures import long_life
from benchmarks.pictures.bars import draw
from benchmarks.pictures.figures import FILE, Chart, of_sitting, read, table, write

DIRECTORY = Path(__file__).parent.parent.parent / "docs" / "pictures"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("--sitting", type=Path, metavar="FILE", help="kafka.json of a sitting")
    parser.add_argument("--output", type=Path, default=DIRECTORY, help="a directory for the pictures")
    options = parser.parse_args()
    charts = read(FILE)
    if options.sitting is not None:
        kafka = charts["beside-kafka"]
        charts["beside-kafka"] = Chart(kafka.title, kafka.axis, of_sitting(options.sitting))
        write(FILE, charts)
        print("\n".join(table(charts["beside-kafka"])))
    for name, chart in charts.items():
        draw(chart, options.output / f"{name}.png")
        print(options.output / f"{name}.png")
    long_life.draw(long_life.read(), options.output / f"{long_life.NAME}.png")
    print(options.output / f"{long_life.NAME}.png")


if __name__ == "__main__":
    main()
