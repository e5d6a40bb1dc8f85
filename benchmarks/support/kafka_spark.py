"""The Spark that Kafka's connector is published for: a Python environment of its own, and the connector's jars.

Both lie in the cache directory of `tests/support/maven.py`, made once. pip installs from the index that the machine's
own settings name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.maven import ApacheUnavailable, alone, cache_directory, jars_of

RELEASE: Final = "4.2.0"
POM: Final = Path(__file__).with_name("kafka_connector.xml")
INSTALL_SECONDS: Final = 900


def python_with_spark() -> Path:
    """Returns the Python of an environment with this release of PySpark. Installs it the first time (450 MB).

    Two processes at once are safe. Raises `ApacheUnavailable` when pip cannot install it.
    """
    name = f"pyspark-{RELEASE}-python{sys.version_info.major}.{sys.version_info.minor}"
    directory = cache_directory() / name
    finished = directory / "finished"
    if not finished.exists():
        with alone(cache_directory() / f"{name}.lock"):
            if not finished.exists():
                _install(directory)
                finished.touch()
    return directory / "bin" / "python"


def connector_jars(python: Path) -> list[Path]:
    """Returns the jars of the connector that this Python's Spark does not bring itself, in any release of them."""
    (spark,) = python.parent.parent.glob("lib/python*/site-packages/pyspark/jars")
    brought = {_artifact(jar) for jar in spark.glob("*.jar")}
    jars = sorted(jars_of("spark-kafka", RELEASE, POM).glob("*.jar"))
    return [jar for jar in jars if _artifact(jar) not in brought]


def _artifact(jar: Path) -> str:
    """Returns a jar's name without its release: `kafka-clients-3.9.1.jar` is `kafka-clients`."""
    return jar.stem.rpartition("-")[0]


def _install(directory: Path) -> None:
    """Makes the environment anew, also over a half-made one."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(directory)],
        [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", f"pyspark=={RELEASE}"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            raise ApacheUnavailable(f"pyspark {RELEASE} did not come within {INSTALL_SECONDS} s; try again") from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ApacheUnavailable(f"pip could not install pyspark {RELEASE}: {reason[:300]}")
