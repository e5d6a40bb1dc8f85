#!/usr/bin/env bash
# Package: pyarrow 26.0.1 (PyPI).
# Behaviour: StructArray.field("a") of rows that are null shows the values that stand behind the nulls.
#   pyarrow.compute.struct_field and flatten() of the same array give null for these rows, and to_pylist() shows None.
# The guess one would make: field("a"), the shortest of the three, is the column a of the rows, so a null row has no a;
#   the three differ in form only.
# Where it matters: sums and joins over a member of a struct that was made with a mask, or by a decoder that fills
#   members first and finds out later that the row is null. They count rows that are not there. A copy by if_else has no
#   values behind its nulls, so the same code is right with one array and wrong with an equal one.
# Output seen: rows [{'a': 1}, None, {'a': 4}]; sum by field 7, by struct_field 5; in the equal copy 5 and 5
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 || exit 2
cat > look.py <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc

values = pa.array([1, 2, 4])
rows = pa.StructArray.from_arrays([values], ["a"], mask=pa.array([False, True, False]))
plain = pa.StructArray.from_arrays([values], ["a"])
kept = pc.if_else(pc.not_equal(values, 2), plain, pa.scalar(None, plain.type))
sums = [pc.sum(each).as_py() for kind in (rows, kept) for each in (kind.field("a"), pc.struct_field(kind, "a"))]
print(
    f"rows {rows.to_pylist()}; sum by field {sums[0]}, by struct_field {sums[1]}; "
    f"in the equal copy {sums[2]} and {sums[3]}"
)
same = rows.equals(kept) and rows.to_pylist() == [{"a": 1}, None, {"a": 4}]
sys.exit(0 if same and sums == [7, 5, 5, 5] else 1)
PYTHON
venv/bin/python look.py || exit 1
