#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: commit(end) of a Python stream reader is called for a batch when the next one is planned. A query with the
#   trigger availableNow that ends without an error has written all rows and committed all but the last batch, and with
#   one batch nothing at all. The next run commits it only if there is new data.
# The guess one would make: commit says that Spark is done with the data up to end (so its documentation), so when
#   awaitTermination() returns, the reader was told about everything that is in the sink.
# Where it matters: a reader that acknowledges, or deletes, upstream in commit(). A nightly job leaves the last batch of
#   each night unacknowledged until the next, and its lag never reaches zero.
# Output seen: rows 8, commits []; again without new data: rows 8, commits []; with 8 more: rows 16, commits [8]
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2
cat > look.py <<'PYTHON'
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

COMMITS, END = os.path.join(sys.argv[1], "commits"), os.path.join(sys.argv[1], "end")


class NumbersReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self):
        with open(END) as file:
            return {"n": int(file.read())}

    def partitions(self, start, end):
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition):
        return ((number,) for number in range(*partition.value))

    def commit(self, end):
        with open(COMMITS, "a") as file:
            file.write(f"{end['n']} ")


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "a int"

    def streamReader(self, schema):
        return NumbersReader()


def run(end):
    with open(END, "w") as file:
        file.write(str(end))
    stream = spark.readStream.format("numbers").load().writeStream.format("parquet").trigger(availableNow=True)
    query = stream.option("checkpointLocation", sys.argv[1] + "/checkpoint").start(sys.argv[1] + "/rows")
    query.awaitTermination()
    with open(COMMITS) as file:
        return spark.read.parquet(sys.argv[1] + "/rows").count(), [int(text) for text in file.read().split()]


open(COMMITS, "w").close()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Numbers)
first, idle, more = run(8), run(8), run(16)
spark.stop()
lines = [f"rows {rows}, commits {commits}" for rows, commits in (first, idle, more)]
print(f"{lines[0]}; again without new data: {lines[1]}; with 8 more: {lines[2]}")
sys.exit(0 if (first, idle, more) == ((8, []), (8, []), (16, [8])) else 1)
PYTHON
PYSPARK_PYTHON=$work/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py "$work" 2> errors || { tail -n 3 errors >&2; exit 1; }
