#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: from_json with a column of type string writes a JSON number anew from a double: 12345678901234567890.50
#   becomes 1.2345678901234567E19 and 1.10 becomes 1.1. What follows the first object of a text is ignored, and the
#   column of columnNameOfCorruptRecord stays null for two objects in one text. The reader spark.read.json, in the same
#   release and with the same schema, keeps every digit of such a number.
# Guess: a string column is the safe choice for amounts, since it has the text as it stands, and a corrupt-record
#   column is null only for texts that are one JSON value.
# Where it matters: amounts of money whose type is kept as string to lose no digit, and log shippers that put several
#   lines into one record: all but the first are lost without a word.
# Output seen: from_json: 1.2345678901234567E19 1.1; read.json: 12345678901234567890.50 1.10; two objects: 1 None
set -euo pipefail

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" || exit 2
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 || exit 2
cat >"$work/look.py" <<'PYTHON'
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

path = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
texts = ["12345678901234567890.50", "1.10"]
with open(path, "w") as file:
    for text in texts:
        file.write(f'{{"a":{text}}}\n')
frame = spark.read.text(path)
parsed = [row[0] for row in frame.select(F.from_json("value", "a string").a).collect()]
read = [row.a for row in spark.read.schema("a string").json(path).collect()]
two = spark.sql("""select from_json('{"a":1}{"a":2}', 'a int, c string', map('columnNameOfCorruptRecord', 'c')) r""")
row = two.first().r
print("from_json:", *parsed, "| read.json:", *read, "| two objects:", row.a, row.c)
spark.stop()
same = parsed == ["1.2345678901234567E19", "1.1"] and read == texts and (row.a, row.c) == (1, None)
sys.exit(0 if same else 1)
PYTHON
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$work/venv/bin/python" "$work/look.py" "$work/amounts.json" || exit 1
