#!/usr/bin/env bash
# Package: polars 2.1.0 (PyPI).
# Behaviour: a column of Datetime("ns") that is compared with a Python datetime is cut to microseconds first. Values up to
#   999 ns later are equal to the datetime and not greater. is_in with the same datetime in a list keeps the nanoseconds.
# The guess one would make: the datetime, which is exact, becomes nanoseconds, so that > and == are those of the stored
#   values, and x == d says the same as x.is_in([d]). (pandas and pyarrow do so.)
# Where it matters: reading on from the last seen time, pl.col("time") > last, in Parquet files with nanoseconds, which
#   databases and message logs write: rows within the microsecond of the last one are skipped.
# Output seen: of 0, 1 and 999 ns behind d: greater than d 0, equal to d 3, in [d] 1, greater than d as ns 2
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 || exit 2
cat > look.py <<'PYTHON'
import datetime
import sys

import polars as pl

d = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
start = int(d.timestamp()) * 10**9
time = pl.col("time")
frame = pl.DataFrame({"time": pl.Series([start, start + 1, start + 999]).cast(pl.Datetime("ns", "UTC"))})
exact = pl.lit(d).cast(pl.Datetime("ns", "UTC"))
counts = [frame.filter(condition).height for condition in (time > d, time == d, time.is_in([d]), time > exact)]
print("of 0, 1 and 999 ns behind d: greater than d {}, equal to d {}, in [d] {}, greater than d as ns {}".format(*counts))
sys.exit(0 if counts == [0, 3, 1, 2] else 1)
PYTHON
venv/bin/python look.py || exit 1
