"""A smoke of the data source on PySpark 4.0, 4.1 and 4.2; all other tests run on the newest release.

Each release is installed once into the cache (`tests/support/apart.py`) and stands before the environment's own on the
path of a pytest of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Final

import pytest

from tests.support.apart import installed_apart
from tests.support.maven import ApacheUnavailable
from tests.support.spark import ROOT

RELEASES: Final = ("4.0.5", "4.1.4", "4.2.1")
# The streams without a limit: releases before 4.2 refuse limits by name (tests/spark/test_older_streams.py).
STREAMS: Final = (
    "everything_once_over_stops or latest_sees or new_queues or times_start or deleted_topic or windows or batch_0 "
    "or joined_with_itself"
)
SMOKE: Final = (
    ("tests/spark/test_batches.py",),
    ("tests/spark/test_streams.py", "-k", STREAMS),
    ("tests/spark/test_stream_sink.py", "-k", "arrives_once or complete or the_same_ids"),
)
# Spark 4.0 plans a frame anew for each action, so its end is another one each time.
PLANNED_ONCE: Final = "tests/spark/test_batches.py::TestBatchJobs::test_a_frame_is_read_again_from_the_same_offsets"

SECONDS: Final = 900
# Of PySpark itself: 4.1 leaves the driver's sockets of the file system to the garbage collector.
WARNINGS: Final = ("ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)  # the first time it is installed
@pytest.mark.parametrize("release", RELEASES)
def test_batches_and_streams(release: str) -> None:
    try:
        directory = installed_apart(f"pyspark-{release}", [f"pyspark=={release}"])
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    environment = os.environ | {"PYTHONPATH": str(directory)}
    for cases in SMOKE:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *cases]
        command += ["--deselect", PLANNED_ONCE] if release.startswith("4.0.") else []
        command += [part for warning in WARNINGS for part in ("-W", warning)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, (
            f"PySpark {release}, {' '.join(cases)}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
        )
        assert re.search(r"^[1-9]\d* passed", done.stdout, re.MULTILINE), done.stdout[-2000:]
