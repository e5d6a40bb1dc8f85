#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: CREATE TABLE ... USING a Python data source OPTIONS (...) AS SELECT makes the writer without any of the
#   options. So does an INSERT INTO a table that was created with them, and a SELECT from it; only INSERT INTO ... WITH
#   (...) passes options. CREATE TEMPORARY VIEW with the same words keeps them.
# The guess one would make: OPTIONS of CREATE TABLE are stored with the table and given to whatever reads or writes it,
#   as they are for JDBC, Parquet and other sources, and at least to the AS SELECT of the same statement.
# Where it matters: a source whose options say where the data are (an address, a topic, a path of its own) cannot be a
#   table; one that has defaults for them writes to the default place, without an error.
# Output seen: as select: {}; insert: {}; select: {}; insert with: {place=b}; view: {place=a}
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
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, WriterCommitMessage


def note(options):
    with open("options", "a") as file:
        file.write("{" + ",".join(f"{name}={value}" for name, value in dict(options).items()) + "}\n")


class Reader(DataSourceReader):
    def read(self, partition):
        return iter([(1,)])


class Writer(DataSourceWriter):
    def write(self, iterator):
        list(iterator)
        return WriterCommitMessage()


class Places(DataSource):
    @classmethod
    def name(cls):
        return "places"

    def schema(self):
        return "a bigint"

    def reader(self, schema):
        note(self.options)
        return Reader()

    def writer(self, schema, overwrite):
        note(self.options)
        return Writer()


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Places)
seen = {}
for name, statement in {
    "as select": "CREATE TABLE made USING places OPTIONS (place 'a') AS SELECT 1L AS a",
    "": "CREATE TABLE other USING places OPTIONS (place 'a')",
    "insert": "INSERT INTO other SELECT 2L",
    "select": "SELECT * FROM other",
    "insert with": "INSERT INTO other WITH (place 'b') SELECT 3L",
    " ": "CREATE TEMPORARY VIEW viewed USING places OPTIONS (place 'a')",
    "view": "SELECT * FROM viewed",
}.items():
    open("options", "w").close()
    spark.sql(statement).collect()
    if name.strip():
        seen[name] = open("options").read().split()[-1]
print("; ".join(f"{name}: {options}" for name, options in seen.items()))
spark.stop()
sys.exit(0 if list(seen.values()) == ["{}", "{}", "{}", "{place=b}", "{place=a}"] else 1)
PYTHON
PYSPARK_PYTHON=$work/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py 2> errors || { tail -n 3 errors >&2; exit 1; }
