"""The fixture `rocketmq_cluster`, in pytest runs of their own: it is found, it works, and it costs others nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = (ROOT / "docs" / "testing.md").read_text()
EXAMPLE = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "rocketmq_cluster" in block)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for the path, in which pytest finds the entry points of our pyproject.toml, as if it were installed."""
    metadata = tmp_path / "installed" / "plugin_under_test-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-under-test\nVersion: 1\n")
    points = PROJECT["project"]["entry-points"]["pytest11"]
    (metadata / "entry_points.txt").write_text(
        "[pytest11]\n" + "".join(f"{name} = {points[name]}\n" for name in points)
    )
    return metadata.parent


def run(installed: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    folder = installed.parent / "program"
    folder.mkdir()
    (folder / "test_program.py").write_text(tests)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_the_example_of_the_page_passes(installed: Path) -> None:
    done = run(installed, EXAMPLE, "--strict-markers", "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_each_test_has_a_cluster_of_its_own_which_ends_with_it(installed: Path) -> None:
    tests = """
import socket
import pytest

seen = []

@pytest.mark.parametrize("number", range(2))
def test_one(rocketmq_cluster, number):
    for nameserver in seen:
        with pytest.raises(OSError):
            socket.create_connection(nameserver.split(":"), timeout=5)
    assert rocketmq_cluster.nameserver not in seen
    seen.append(rocketmq_cluster.nameserver)
"""
    done = run(installed, tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_on_trio_can_use_it(installed: Path) -> None:
    tests = """
import pytest
from pyrmq_core import Message, Producer

@pytest.mark.trio
async def test_one(rocketmq_cluster):
    async with Producer("orders", nameserver=rocketmq_cluster.nameserver) as producer:
        assert (await producer.send(Message("orders", b"one"))).queue_offset == 0
"""
    done = run(installed, tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_does_not_use_it_loads_nothing(installed: Path) -> None:
    tests = """
import sys

def test_one(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("rocketmq")
    assert sorted({"pyrmq_core", "trio", "pyarrow"} & set(sys.modules)) == []
"""
    done = run(installed, tests, "-p", "no:trio", "-p", "no:anyio")  # the plugins of pytest-trio and anyio load trio
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_module_is_packaged() -> None:
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    for module in PROJECT["project"]["entry-points"]["pytest11"].values():
        assert f"{module}.py" in targets["wheel"]["only-include"]
        assert f"/{module}.py" in targets["sdist"]["include"]
