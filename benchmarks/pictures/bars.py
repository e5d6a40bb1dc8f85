"""Bars from 1 to the ratio of rows that vary in length, with a mark at the ratio of equal rows, as a PNG file."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.pictures.figures import Chart

COLORS = ("#1f6fb4", "#d9822b", "#4c8c4a")
# A ground of its own, so that the picture reads the same on a light page and on a dark one.
GROUND, INK, FAINT = "#f8f8f6", "#222222", "#8a8a8a"
TICKS = (0.25, 0.5, 1, 2, 4)


def draw(chart: Chart, file: Path) -> None:
    """Draws a group of bars for each row, from the top down; the scale is that of powers of two."""
    rows = list(dict.fromkeys(bar.row for bar in chart.bars))
    sides = list(dict.fromkeys(bar.side for bar in chart.bars))
    places = {}
    top = 0.0
    for row in rows:
        for bar in (bar for bar in chart.bars if bar.row == row):
            places[bar] = top
            top += 1
        top += 0.7
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.24 * top), layout="constrained", facecolor=GROUND)
    axes.set_facecolor(GROUND)
    for bar, place in places.items():
        axes.barh(place, bar.varied - 1, 0.86, left=1, color=COLORS[sides.index(bar.side)])
        axes.plot([bar.equal], [place], color=INK, marker="|", markersize=9, markeredgewidth=1.6)
        axes.text(max(bar.varied, bar.equal, 1) * 1.04, place, f"{bar.varied:.2f}", va="center", color=INK, fontsize=9)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.3, max(4, 1.25 * max(max(bar.varied, bar.equal) for bar in chart.bars)))
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(chart.axis, color=INK)
    middles = [[place for bar, place in places.items() if bar.row == row] for row in rows]
    axes.set_yticks([sum(group) / len(group) for group in middles], [row.replace("`", "") for row in rows])
    axes.set_ylim(top - 0.5, -0.9)
    axes.tick_params(colors=INK, length=0)
    axes.grid(visible=True, axis="x", color=FAINT, alpha=0.4)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(chart.title, color=INK, fontsize=11, loc="left")
    handles = [*(Patch(color=color) for color in COLORS[: len(sides)]), Line2D([], [], color=INK, marker="|", ls="")]
    labels = [*(f"{side}, rows that vary" for side in sides), "rows of one length"]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, labelcolor=INK)
    figure.savefig(file, dpi=90, facecolor=GROUND)
    plt.close(figure)
