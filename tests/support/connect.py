"""The packages that a client of Spark Connect needs and pyrmq does not: installed once by pip into a cache directory.

They are no part of the environment: with pandas in it, each Python worker of Spark takes a second longer to start.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.maven import ApacheUnavailable, alone, cache_directory

PACKAGES = (
    "pandas==3.1.1",
    "python-dateutil==4.0.0",
    "six==1.17.0",
    "grpcio==1.85.1",
    "grpcio-status==1.85.1",
    "googleapis-common-protos==1.76.0",
    "protobuf==7.36.2",
)
INSTALL_SECONDS = 600


def connect_client() -> Path:
    """Returns a directory for PYTHONPATH, safely for two processes at once.

    Raises `ApacheUnavailable` where the packages cannot be downloaded.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    directory = cache_directory() / f"connect-4.3-python-{python}"
    if not directory.is_dir():
        with alone(directory.with_suffix(".lock")):
            if not directory.is_dir():
                _install(directory)
    return directory


def _install(directory: Path) -> None:
    unfinished = directory.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(unfinished), *PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise ApacheUnavailable(f"Spark Connect's client did not come within {INSTALL_SECONDS} s; try again") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise ApacheUnavailable(f"pip could not fetch Spark Connect's client: {lines[-1][:300]}")
    unfinished.rename(directory)
