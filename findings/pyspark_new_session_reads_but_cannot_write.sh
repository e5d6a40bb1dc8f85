#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: a Python data source that is registered in a session of spark.newSession() is read there, and a write from
#   a frame of the same session, batch or stream, ends with DATA_SOURCE_NOT_FOUND. Registering it in the first session
#   as well lets the write of the new one through.
# The guess one would make: spark.dataSource.register belongs to its session, so the session that reads by the name also
#   writes by it, and what is registered in another session does not count.
# Where it matters: servers that give each user a session, and tests that want a clean one. It looks as if the source
#   could not write, and the fix that works registers it for others.
# Output seen: read: [1]; write: DATA_SOURCE_NOT_FOUND; write when the first session has it: written
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2
cat > look.py <<'PYTHON'
import re
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, WriterCommitMessage


class Reader(DataSourceReader):
    def read(self, partition):
        return iter([(1,)])


class Writer(DataSourceWriter):
    def write(self, iterator):
        list(iterator)
        return WriterCommitMessage()


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "a bigint"

    def reader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Writer()


def written(frame):
    try:
        frame.write.format("numbers").mode("append").save()
    except Exception as error:
        found = re.search(r"DATA_SOURCE_NOT_FOUND", str(error))
        return found[0] if found else str(error)
    return "written"


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
session = spark.newSession()
session.dataSource.register(Numbers)
rows = [row.a for row in session.read.format("numbers").load().collect()]
frame = session.range(1).selectExpr("id AS a")
first = written(frame)
spark.dataSource.register(Numbers)
second = written(frame)
print(f"read: {rows}; write: {first}; write when the first session has it: {second}")
spark.stop()
sys.exit(0 if (rows, first, second) == ([1], "DATA_SOURCE_NOT_FOUND", "written") else 1)
PYTHON
PYSPARK_PYTHON=$work/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py 2> errors || { tail -n 3 errors >&2; exit 1; }
