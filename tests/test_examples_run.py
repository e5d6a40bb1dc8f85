"""Every example is a script of its own: it runs with only the installed packages and its own folder on the path."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
# The folder's parent is not on a user's path; here it is, so the name is blocked. What an example imported from its
# folder is forgotten before the next one.
PROGRAM = """
import json, runpy, sys, traceback
from pathlib import Path

folder, errors = Path(sys.argv[1]), {}
sys.modules["examples"] = None
sys.path.insert(0, str(folder))
for path in sorted(folder.glob("*.py")):
    try:
        runpy.run_path(str(path), run_name="example")
        errors[path.name] = ""
    except BaseException:
        errors[path.name] = traceback.format_exc()
    for name in [name for name in sys.modules if (folder / (name + ".py")).exists()]:
        del sys.modules[name]
print(json.dumps(errors))
"""


def test_each_example_finds_what_it_imports() -> None:
    """One process for all: most of what one costs is the import of PySpark."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(EXAMPLES)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    errors = json.loads(done.stdout)
    assert {name for name in errors if errors[name]} == set(), "".join(errors.values())
    assert errors.keys() == {path.name for path in EXAMPLES.glob("*.py")}
