"""Packages whose names are loaded when first named have each of them, and say which they have not."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("pyrmq_core", "pyrmq_core.blocking", "pyrmq_core.columnar", "pyrmq_core.network", "pyrmq_spark")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    """In a process of its own: here most of them are loaded already."""
    code = f"import {package} as it; print([name for name in it.__all__ if not hasattr(it, name)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_none_is_refused(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"^{package} has no public name 'nothing'$"):
        _ = importlib.import_module(package).nothing


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_no_public_one_is_not_loaded(package: str) -> None:
    """What `from package import *` and a wrong import see."""
    module = importlib.import_module(package)
    assert set(module._LAZY) <= set(module.__all__)
