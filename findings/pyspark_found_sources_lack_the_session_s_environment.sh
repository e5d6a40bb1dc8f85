#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: a Python data source that Spark finds itself (a module pyspark_*, with a DefaultSource) runs without what the
#   session gives its Python: spark.executorEnv.* are no variables in its tasks, and modules in archives of addPyFile
#   cannot be imported there. A function on an RDD of the same session has both, and so has the same class after
#   spark.dataSource.register. (A single .py file of addPyFile is found either way.)
# The guess one would make: spark.executorEnv and addPyFile hold for every Python process of an executor, and a source
#   that is found by its name is a source that is registered.
# Where it matters: addresses, credentials or a path that a job passes by spark.executorEnv, and sources whose
#   dependencies are shipped as an archive. The source is found and planned, and then lacks them in its tasks.
# Output seen: a function: (x, imported); the source as found: (None, ModuleNotFoundError); registered: (x, imported)
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2
echo "VALUE = 1" > shipped_by_the_job.py
python3 -m zipfile -c shipped.zip shipped_by_the_job.py
rm shipped_by_the_job.py
site=$(venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
cat > "$site/pyspark_surroundings.py" <<'PYTHON'
import os

from pyspark.sql.datasource import DataSource, DataSourceReader


def surroundings():
    try:
        import shipped_by_the_job  # noqa: F401
    except ImportError as error:
        return os.environ.get("SURROUNDINGS"), type(error).__name__
    return os.environ.get("SURROUNDINGS"), "imported"


class Reader(DataSourceReader):
    def read(self, partition):
        yield surroundings()


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "surroundings"

    def schema(self):
        return "variable string, shipped string"

    def reader(self, schema):
        return Reader()
PYTHON
cat > look.py <<'PYTHON'
import sys

from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.executorEnv.SURROUNDINGS", "x").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.sparkContext.addPyFile("shipped.zip")


def in_a_task(_):
    from pyspark_surroundings import surroundings

    return surroundings()


def read():
    return tuple(spark.read.format("surroundings").load().first())


function = spark.sparkContext.parallelize([0], 1).map(in_a_task).first()
found = read()
from pyspark_surroundings import DefaultSource  # noqa: E402

spark.dataSource.register(DefaultSource)
registered = read()
texts = ["(" + ", ".join(map(str, pair)) + ")" for pair in (function, found, registered)]
print(f"a function: {texts[0]}; the source as found: {texts[1]}; registered: {texts[2]}")
spark.stop()
both, none = ("x", "imported"), (None, "ModuleNotFoundError")
sys.exit(0 if (function, found, registered) == (both, none, both) else 1)
PYTHON
PYSPARK_PYTHON=$work/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py 2> errors || { tail -n 3 errors >&2; exit 1; }
