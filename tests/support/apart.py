"""Packages that some tests need and the environment must not have: installed once by pip into a cache directory.

pandas is the reason: with it in the environment, each Python worker of Spark takes a second longer to start. The others
are large, or needed by the recipes of the documentation alone.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.maven import ApacheUnavailable, alone, cache_directory

INSTALL_SECONDS = 600
# pip builds a wheel of PySpark's sources and unpacks it. Without compression: 12 s of processor time in place of 21.
PLAIN_WHEEL = "--config-settings=--build-option=--compression=stored"
PANDAS = ("pandas==3.1.1", "python-dateutil==4.0.0", "six==1.17.0")


def installed_apart(name: str, packages: Sequence[str]) -> Path:
    """Returns the directory for PYTHONPATH that has these packages, safely for two processes at once.

    The packages are pinned and complete, but for what the environment has. Raises `ApacheUnavailable` where they cannot
    be downloaded.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    directory = cache_directory() / f"{name}-python-{python}"
    if not directory.is_dir():
        with alone(cache_directory() / f"{directory.name}.lock"):
            if not directory.is_dir():
                _install(name, packages, directory)
    return directory


def _install(name: str, packages: Sequence[str], directory: Path) -> None:
    unfinished = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", PLAIN_WHEEL]
    command += ["--target", str(unfinished), *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise ApacheUnavailable(f"{name} did not come within {INSTALL_SECONDS} s; try again") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise ApacheUnavailable(f"pip could not fetch {name}: {lines[-1][:300]}")
    unfinished.rename(directory)
