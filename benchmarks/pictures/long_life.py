"""The picture of a long life: memory, disk, handles and tasks of each process while messages pass, as a PNG file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from benchmarks.pictures.bars import FAINT, GROUND, INK
from benchmarks.support.growth import MILLION, WARM_UP, Sample

FILE: Final = Path(__file__).with_name("long_life.json")
NAME: Final = "long-life"
PANELS: Final = {
    "resident MiB": "resident memory, MiB",
    "disk MiB": "the broker's disk, MiB",
    "handles": "open handles",
    "tasks": "tasks of trio",
}
COLORS: Final = {"producer": "#1f6fb4", "consumer": "#d9822b", "broker": "#4c8c4a", "NameServer": "#8a5aa5"}


def read(file: Path = FILE) -> list[Sample]:
    """Returns the samples that `benchmarks.long_life --output` wrote."""
    return [Sample(**sample) for sample in json.loads(file.read_text())]


def draw(samples: Sequence[Sample], file: Path) -> None:
    """Draws a panel for each figure, over the messages consumed; the warm-up is grey."""
    last = max(sample.messages for sample in samples) / MILLION
    figure, panels = plt.subplots(2, 2, figsize=(9, 5), layout="constrained", facecolor=GROUND)
    for axes, (name, title) in zip(panels.flat, PANELS.items(), strict=True):
        axes.set_facecolor(GROUND)
        axes.axvspan(0, WARM_UP * last, color=FAINT, alpha=0.15, linewidth=0)
        for process, color in COLORS.items():
            own = [sample for sample in samples if sample.process == process and name in sample.figures]
            at = [sample.messages / MILLION for sample in own]
            axes.plot(at, [sample.figures[name] for sample in own], color=color, linewidth=1.4)
        axes.set_xlim(0, last)
        axes.set_ylim(bottom=0)
        axes.set_title(title, color=INK, fontsize=10, loc="left")
        axes.tick_params(colors=INK, length=0)
        axes.grid(visible=True, color=FAINT, alpha=0.4)
        for spine in axes.spines.values():
            spine.set_visible(False)
    for axes in panels[1]:
        axes.set_xlabel("million messages consumed", color=INK)
    lines = [Line2D([], [], color=color) for color in COLORS.values()]
    figure.legend(lines, COLORS, loc="outside lower center", ncols=len(COLORS), frameon=False, labelcolor=INK)
    figure.savefig(file, dpi=90, facecolor=GROUND)
    plt.close(figure)
