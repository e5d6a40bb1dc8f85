"""Loads a package's public names at their first use (PEP 562), so that a process imports only what it uses.

Such a package names each one three times: imported under `TYPE_CHECKING`, in `__all__`, and beside its module in
`_LAZY`. `tests/test_lazy_names.py` compares the three. A type checker reads only the first two. `_LAZY` cannot be
computed from these: a frozen program has no source, a compiled one has no bytecode.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_when_named(
    package: str, names: Sequence[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a package with the public names `names`.

    `modules` has, by module, the names that are imported from it at their first use, separated by blanks.
    """
    module_of = {name: module for module, lazy in modules.items() for name in lazy.split()}

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"{package} has no public name {name!r}")
        try:
            value = getattr(importlib.import_module(module), name)
        except AttributeError as error:  # as such it would read as a name that the package does not have
            raise ImportError(f"{module}, which has {package}.{name}, cannot be loaded: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: list(names)
