#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: a Python data source whose reader accepts a filter (pushFilters, spark.sql.python.filterPushdown.enabled)
#   keeps one plan for a loaded frame. The filter that was pushed last is used by every scan of that frame: a count without
#   a condition misses rows, and a union of two conditions reads one of them twice.
# The guess one would make: each query plans its own scan, as with Parquet or JDBC, and a frame without a filter has all
#   rows, whatever was asked of it before.
# Where it matters: any source that follows the documented interface. A job that logs frame.where(...).count() before it
#   writes the frame writes too few rows, without an error.
# Output seen: where a > 6: 3; all: 3 (of 10); union of a > 7 and a > 2: 14 rows for 9
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2
cat > look.py <<'PYTHON'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan


class NumbersReader(DataSourceReader):
    def __init__(self):
        self.bound = -1

    def pushFilters(self, filters):
        for condition in filters:
            if isinstance(condition, GreaterThan):
                self.bound = condition.value
            else:
                yield condition

    def read(self, partition):
        return ((number,) for number in range(10) if number > self.bound)


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "a int"

    def reader(self, schema):
        return NumbersReader()


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
spark.dataSource.register(Numbers)
frame = spark.read.format("numbers").load()
counts = frame.where("a > 6").count(), frame.count()
other = spark.read.format("numbers").load()
union = other.where("a > 7").union(other.where("a > 2")).count()
print(f"where a > 6: {counts[0]}; all: {counts[1]} (of 10); union of a > 7 and a > 2: {union} rows for 9")
spark.stop()
sys.exit(0 if counts == (3, 3) and union == 14 else 1)
PYTHON
PYSPARK_PYTHON=$work/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py 2> errors || { tail -n 3 errors >&2; exit 1; }
