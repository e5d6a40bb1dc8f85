#!/usr/bin/env bash
# Package: pyspark 4.3.0 (PyPI), with a Java 17 or 21 on the path.
# Behaviour: by default each function and operator of a column first asks the JVM for a setting, then sends it the
#   caller's line, and takes it back behind the call; and it tries to import IPython anew, which is not remembered where
#   it is not installed. spark.python.sql.dataFrameDebugging.enabled=false, read once in a process, ends all of it.
# The guess one would make: a column is an expression without a plan, so that 1,000 of them cost 1,000 short calls, and
#   a setting about error messages costs nothing where there is no error.
# Where it matters: plans that a program writes (wide tables, rules, validations) and that foreachBatch builds anew for
#   each micro-batch: a builder of 1,700 expressions took 2.9 s by default and 1.7 s without it on two busy cores.
# Output seen: 100 additions: 1100 commands to the JVM and 100 searches for IPython; without lines 100 and 0
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v java >/dev/null || { echo "no java on the path" >&2; exit 2; }
python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 || exit 2
cat > look.py <<'PYTHON'
import sys

from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

COUNT = 100
commands, searches = [], []
send_command = ClientServerConnection.send_command


def counted(self, command):
    commands.append(command)
    return send_command(self, command)


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "IPython":
            searches.append(name)


builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.python.sql.dataFrameDebugging.enabled", sys.argv[1]).getOrCreate()
total, one = F.col("a") + 1, F.lit(1)
ClientServerConnection.send_command = counted
sys.meta_path.insert(0, Finder)
for _ in range(COUNT):
    total = total + one
# Columns that the loop let go of are released by commands of their own, whenever Python frees them.
print(len([command for command in commands if not command.startswith("m\nd\n")]), len(searches))
ClientServerConnection.send_command = send_command
spark.stop()
PYTHON
lines=$(SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py true 2> errors) || { tail -n 3 errors >&2; exit 1; }
none=$(SPARK_LOCAL_IP=127.0.0.1 venv/bin/python look.py false 2> errors) || { tail -n 3 errors >&2; exit 1; }
echo "100 additions: ${lines% *} commands to the JVM and ${lines#* } searches for IPython; without lines ${none% *} and ${none#* }"
[ "$lines" = "1100 100" ] && [ "$none" = "100 0" ] || exit 1
