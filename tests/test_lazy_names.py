"""Packages with lazy names have each of them, and name the ones they lack."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

PACKAGES = ("pyrmq_core", "pyrmq_core.blocking", "pyrmq_core.columnar", "pyrmq_core.network", "pyrmq_spark")
CHECKING = "TYPE_CHECKING"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    """It runs in a process of its own: here most of them are loaded already."""
    code = f"import {package} as it; print([name for name in it.__all__ if not hasattr(it, name)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_none_is_refused(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"^{package} has no public name 'nothing'$"):
        _ = importlib.import_module(package).nothing


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_loaded_when_named_is_public_and_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert set(" ".join(module._LAZY.values()).split()) <= set(module.__all__)
    assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_table_is_what_a_type_checker_reads(package: str) -> None:
    """The difference in the failure is the line to correct."""
    module = importlib.import_module(package)
    tree = ast.parse(inspect.getsource(module))
    (block,) = [branch for branch in tree.body if isinstance(branch, ast.If) and ast.unparse(branch.test) == CHECKING]
    imports = [statement for statement in block.body if isinstance(statement, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    read = {(statement.module, alias.name) for statement in imports for alias in statement.names}
    assert read == {(name, lazy) for name, names in module._LAZY.items() for lazy in names.split()}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_type_checker_knows_no_name_but_these(package: str) -> None:
    """One that sees `__getattr__` lets every name pass, also a misspelt one in a user's program."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    seen = [statement for statement in tree.body if not isinstance(statement, ast.If)]
    assert "__getattr__" not in "\n".join(map(ast.unparse, seen))
    hidden = [
        ast.unparse(branch)
        for branch in tree.body
        if isinstance(branch, ast.If) and "__getattr__" in ast.unparse(branch)
    ]
    assert [branch.splitlines()[0] for branch in hidden] == ["if not TYPE_CHECKING:"]
