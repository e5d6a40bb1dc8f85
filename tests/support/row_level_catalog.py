"""A catalog of Spark whose tables take merges (`java/RowLevelCatalog.java`): compiled, named and read."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyspark

from tests.support.maven import java

SOURCE = Path(__file__).parent / "java" / "RowLevelCatalog.java"
JARS = Path(pyspark.__file__).parent / "jars"
COMPILE_SECONDS = 120
# What a pipeline's description says in place of an installed connector's settings.
SETTINGS: Mapping[str, str] = {
    "org.apache.iceberg.spark.SparkCatalog": "RowLevelCatalog",
    "lake.type: hadoop\n  spark.sql.catalog.lake.warehouse: file://": "lake.directory: ",
    # A merge of few rows is mostly the compiling of its plan.
    'partitions: "2"': 'partitions: "1"\n  spark.sql.codegen.wholeStage: "false"',
}


def compiled_catalog(directory: Path) -> Path:
    """Compiles the catalog into the directory, for the class path of a driver."""
    compiler = Path(java()).with_name("javac")
    command = [str(compiler), "-nowarn", "-d", str(directory), "-cp", f"{JARS}/*", str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS)
    return directory


def table_lines(file: Path) -> list[tuple[str | None, ...]]:
    """Returns the rows of a table that the catalog wrote, each value as its text."""
    return [tuple(_value(text) for text in line.split("\t")) for line in file.read_text().splitlines()]


def _value(text: str) -> str | None:
    return None if text == "\\N" else text.replace("\\n", "\n").replace("\\\\", "\\")
