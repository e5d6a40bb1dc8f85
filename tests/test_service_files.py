"""The units and the container recipe in `examples`: their commands are those that the servers take."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
UNITS = sorted((EXAMPLES / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_units_command_prints_its_settings(unit: Path, tmp_path: Path) -> None:
    """The command runs with -p, which prints what it would do; the path of Python and of the settings differ."""
    start = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    assert start is not None
    settings = tmp_path / "broker.conf"
    settings.write_text("brokerName=broker-a\n")
    python, *words = shlex.split(start[1])
    assert python == "/opt/pyrmq/bin/python"
    words = [str(settings) if word == "/etc/pyrmq/broker.conf" else word for word in words]
    done = subprocess.run([sys.executable, *words, "-p"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "listenPort=" in done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_reads_the_unit_without_a_complaint(unit: Path, tmp_path: Path) -> None:
    """The path of Python is one of this machine: systemd looks whether it is there."""
    copies = {path: tmp_path / path.name for path in UNITS}
    for path, copy in copies.items():
        copy.write_text(path.read_text().replace("/opt/pyrmq/bin/python", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(copies[unit])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_there_are_units_for_both_servers() -> None:
    assert [unit.stem for unit in UNITS] == ["pyrmq-broker", "pyrmq-nameserver"]


def test_the_recipe_installs_extras_that_exist() -> None:
    recipe = (EXAMPLES / "container" / "Containerfile").read_text()
    extras = re.search(r'pip install [^"]*"/src\[([\w,]+)\]"', recipe)
    assert extras is not None
    project = (EXAMPLES.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras[1].split(","))
