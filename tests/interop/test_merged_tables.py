"""`apply` with `merge=True` into tables of Apache Iceberg and of Delta Lake, beside the database of the changes.

No release of Iceberg is for Spark 4.2 or later, so the job runs on PySpark 4.1, for which both have one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.maven import ApacheUnavailable, jars_of
from tests.support.merge_job import DEATH
from tests.support.releases import apart
from tests.support.spark import ROOT
from tests.support.standalone import job_environment

PYSPARK = "4.1.4"
RELEASES = {"iceberg": "1.12.0", "delta": "4.4.0"}
SECONDS = 1200  # the end of a job that hangs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2600)]


@pytest.mark.soak  # each takes five minutes: an older PySpark is started for each of its batches
@pytest.mark.parametrize("kind", list(RELEASES))
def test_a_merged_table_equals_its_database(kind: str, tmp_path: Path) -> None:
    try:
        packages = apart(PYSPARK)
        directory = jars_of(kind, RELEASES[kind], Path(__file__).parents[1] / "support" / f"pom-{kind}.xml")
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    jars = ",".join(map(str, directory.glob(f"{kind}-*.jar")))
    command = [sys.executable, "-m", "tests.support.merge_job", kind, str(tmp_path), jars]
    environment = job_environment(packages[0], ROOT)
    environment.pop("SPARK_HOME", None)
    for number, end in enumerate((DEATH, 0)):  # the second process goes on where the first one died
        log = tmp_path / f"log-{number}"
        with log.open("w") as file:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
            )
        assert done.returncode == end, log.read_text()[-5000:]
    assert (tmp_path / "steps").read_text() == ""
    assert json.loads((tmp_path / "rows").read_text()) == json.loads((tmp_path / "expected").read_text())
    assert os.listdir(tmp_path / "streamed_positions")
