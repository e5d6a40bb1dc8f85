"""Every example is a script of its own: it runs with only the installed packages and its own folder on the path."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_finds_what_it_imports(name: str) -> None:
    """The folder's parent is not on a user's path; here it is, so the name is blocked."""
    code = (
        "import runpy, sys; sys.modules['examples'] = None; sys.path.insert(0, sys.argv[1]);"
        "runpy.run_path(sys.argv[1] + '/' + sys.argv[2], run_name='example')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(EXAMPLES), name], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
