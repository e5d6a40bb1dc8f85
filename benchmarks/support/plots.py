"""Pictures of the curves that `sweeps` measures, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Picture

from benchmarks.support.figures import Curve


def draw(sweeps: Mapping[str, Mapping[str, Curve]], memory: Sequence[tuple[float, int]], directory: Path) -> None:
    """Draws a picture for each sweep, with the rate and the CPU for a million, and one of memory over time."""
    directory.mkdir(parents=True, exist_ok=True)
    for x, curves in sweeps.items():
        figure, (rates, cpu) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
        for name, curve in curves.items():
            places = [point.x for point in curve]
            rates.plot(places, [point.figure.rate / 1000 for point in curve], marker="o", label=name)
            cpu.plot(places, [point.figure.cpu for point in curve], marker="o", label=name)
        for axes, title in ((rates, "thousand messages a second"), (cpu, "client CPU, s a million")):
            axes.set_xlabel(x)
            axes.set_ylabel(title)
            axes.set_xscale("log", base=2 if x == "partitions" else 10)
            if x.startswith("message size"):
                axes.set_yscale("log")
            else:
                axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            axes.grid(visible=True, alpha=0.3)
        figure.legend(*rates.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        _save(figure, directory / f"{x.split(',')[0].replace(' ', '-')}.png")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot([seconds for seconds, _ in memory], [size / 1e6 for _, size in memory])
    axes.set_xlabel("seconds since the write began")
    axes.set_ylabel("largest Python worker, MB resident")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.grid(visible=True, alpha=0.3)
    _save(figure, directory / "memory.png")


def _save(figure: Picture, file: Path) -> None:
    figure.savefig(file, dpi=110)
    plt.close(figure)
