"""Spark finds the source by its name, after an install and after an editable one."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parent.parent.parent
QUIETLY = ("-q", "--no-deps", "--no-index", "--no-build-isolation")
# The rule of pyspark/sql/worker/lookup_data_sources.py (4.3.0), in few words.
LOOKUP = """
import importlib, pkgutil, sys
names = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
assert names == ["pyspark_rocketmq"], names
source = importlib.import_module("pyspark_rocketmq").DefaultSource
from pyspark.sql.datasource import DataSource
assert issubclass(source, DataSource)
heavy = sorted({"trio", "pyarrow", "numpy", "pandas"} & set(sys.modules))
print(source.name(), source.__module__, heavy)
"""


@pytest.mark.parametrize("editable", [False, True])
def test_an_installed_package_is_found(tmp_path: Path, editable: bool) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    # The virtual environment sees the packages installed here, and the project only as pip put it.
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    pyspark_folder = str(Path(pyspark.__file__).parent.parent)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *QUIETLY, *(["-e"] if editable else []), ROOT],
        check=True,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": installed, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        timeout=280,
    )
    result = subprocess.run(
        [python, "-c", f"import sys; sys.path += {[pyspark_folder, installed]}\n{LOOKUP}"],
        check=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.stdout.split(maxsplit=2) == ["rocketmq", "pyrmq_spark.source", "[]\n"]


def test_no_example_registers_the_source_of_an_installed_package() -> None:
    """Spark looks for sources at `register` too, and warns that it replaces the one that it found."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    assert any('format("rocketmq")' in block for block in blocks)
    assert not [block for block in blocks if "dataSource.register" in block or "register(spark)" in block]
