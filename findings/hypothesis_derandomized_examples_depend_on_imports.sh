#!/usr/bin/env bash
# Package: hypothesis 6.170.15 (PyPI), Python 3.11 or later.
# Behaviour: a test with derandomize=True gets other examples if one more module of the same project was imported before
#   it, though the test does not use that module. The constants in the source of local modules are among the values
#   that Hypothesis draws, so each such module changes what is drawn.
# The guess one would make: "derandomize" makes a test a function of its own code, so that a test that passed alone, on a
#   laptop, passes in a run of the whole suite, and in a process that has other files of tests.
# Where it matters: suites that run in several processes (pytest-xdist), where the division of files changes what is
#   imported, and selections of tests. A derandomized test may be green for months, and red in a run before which nobody
#   changed anything near it.
# Output seen: alone, twice: the same; with one more module: other examples, its constant among them: True
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check hypothesis==6.170.15 || exit 2
mkdir project
cat > project/other.py <<'PYTHON'
LIMIT = 918273645
PYTHON
cat > project/look.py <<'PYTHON'
import sys

from hypothesis import given, settings, strategies

if "other" in sys.argv:
    import other  # noqa: F401

seen = []


@settings(derandomize=True, database=None, max_examples=100)
@given(strategies.integers())
def test(number):
    seen.append(number)


test()
print(*seen)
PYTHON
first=$(venv/bin/python project/look.py)
again=$(venv/bin/python project/look.py)
more=$(venv/bin/python project/look.py other)
[ "$first" = "$again" ] && alone="the same" || alone="other examples"
[ "$first" = "$more" ] && beside="the same examples" || beside="other examples"
case " $more " in *" 918273645 "*) has=True ;; *) has=False ;; esac
output="alone, twice: $alone; with one more module: $beside, its constant among them: $has"
echo "$output"
[ "$output" = "alone, twice: the same; with one more module: other examples, its constant among them: True" ] || exit 1
exit 0
