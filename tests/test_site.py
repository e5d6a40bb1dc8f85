"""The hooks of the site of documentation: links of the project's pages lead to the site's."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("target", "outside", "expected"),
    [
        ("python.md", False, "python.md"),
        ("../README.md", False, "index.md"),
        ("../CHANGELOG.md", False, "CHANGELOG.md"),
        ("../examples/demo.py", False, "examples/demo.md"),
        ("../LICENSE", False, "LICENSE.md"),
        ("docs/python.md", True, "python.md"),
        ("CONTRIBUTING.md", True, "CONTRIBUTING.md"),
        ("LICENSE", True, "LICENSE.md"),
        ("examples/demo.py", True, "examples/demo.md"),
        ("../tests/golden/README.md", False, "../tests/golden/README.md"),
    ],
)
def test_where_a_link_leads(site: ModuleType, target: str, outside: bool, expected: str) -> None:
    assert site._target(target, outside) == expected


def test_marks_of_blocks_are_left_out(site: ModuleType) -> None:
    assert site.MARKED_BLOCK.sub(r"\1", "```python apache\nx\n```\n```python\n") == "```python\nx\n```\n```python\n"


def test_every_package_with_public_names_has_a_page(site: ModuleType) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    documented = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## pyrmq")}
    assert set(site.PACKAGES) == documented
    for package in site.PACKAGES:
        page = site.reference(package)
        assert page.count("\n:::") == len(importlib.import_module(package).__all__)
