"""The results of a benchmark in a file, with the machine and versions, without which a figure means nothing."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OUTPUT = Path("build/benchmarks")
LIBRARIES = ("trio", "pyarrow", "numpy", "pyspark")


def write_json(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": _machine(), "rows": rows}, indent=1) + "\n")


def _machine() -> dict[str, object]:
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {"cores": os.cpu_count(), "processor": _processor(), "system": platform.system(), "versions": versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
