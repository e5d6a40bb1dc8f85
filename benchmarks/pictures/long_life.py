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
OURS: Final = ("producer", "consumer", "broker", "NameServer")
SPARKS: Final = ("Spark's JVM", "Spark's Python")
# Panels: a title, its figure, and the processes in it.
PANELS: Final = (
    ("resident memory, MiB", "resident MiB", OURS),
    ("resident memory of Spark, MiB", "resident MiB", SPARKS),
    ("heap of Spark's JVM after a collection, MiB", "heap MiB", SPARKS),
    ("disk, MiB", "disk MiB", (*OURS, *SPARKS)),
    ("open handles", "handles", (*OURS, *SPARKS)),
    ("tasks of trio", "tasks", OURS),
)
COLORS: Final = dict(
    zip((*OURS, *SPARKS), ("#1f6fb4", "#d9822b", "#4c8c4a", "#8a5aa5", "#b03a48", "#5f7f8c"), strict=True)
)


def read(file: Path = FILE) -> list[Sample]:
    """Returns the samples that `benchmarks.long_life --output` wrote."""
    return [Sample(**sample) for sample in json.loads(file.read_text())]


def draw(samples: Sequence[Sample], file: Path) -> None:
    """Draws a panel for each figure, over the messages consumed; the warm-up is grey."""
    last = max(sample.messages for sample in samples) / MILLION
    figure, panels = plt.subplots(2, 3, figsize=(11, 5), layout="constrained", facecolor=GROUND)
    for axes, (title, name, processes) in zip(panels.flat, PANELS, strict=True):
        axes.set_facecolor(GROUND)
        axes.axvspan(0, WARM_UP * last, color=FAINT, alpha=0.15, linewidth=0)
        for process in processes:
            own = [sample for sample in samples if sample.process == process and name in sample.figures]
            at = [sample.messages / MILLION for sample in own]
            axes.plot(at, [sample.figures[name] for sample in own], color=COLORS[process], linewidth=1.4)
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
