"""The form of the programs in `findings/`, which no test runs: they install outside software."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FINDINGS = sorted(Path(__file__).parent.parent.glob("findings/*"))


def faults(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    heading = text.partition("\nset -euo pipefail\n")[0].splitlines()
    rules = {
        "is not executable": os.access(path, os.X_OK),
        "is no bash program": text.startswith("#!/usr/bin/env bash\n# "),
        "says too little at its head": len([line for line in heading if line.startswith("# ")]) >= 5,
        "leaves its folder": "mktemp -d" in text and "trap " in text,
        "cannot say that the behaviour changed": "exit 1" in text,
        "cannot say that the set-up failed": "exit 2" in text,
        "names this project": "pyrmq" not in text.lower(),
    }
    return [fault for fault, holds in rules.items() if not holds]


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.name)
def test_a_finding_has_the_form_of_contributing(path: Path) -> None:
    assert path.suffix == ".sh"
    assert faults(path) == []


def test_a_program_without_the_form_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "library.sh"
    program.write_text("#!/usr/bin/env bash\n# A library.\nset -euo pipefail\nimport pyrmq\n")
    assert len(faults(program)) == 6
