"""The loading of a package's public names at their first use (PEP 562), so that a process imports only what it uses.

Such a package lists each public name three times: as an import under `TYPE_CHECKING`, in `__all__`, and with its module
in `_LAZY`. `tests/test_lazy_names.py` compares the three lists. `_LAZY` cannot be computed from the imports: a frozen
program has no source, and a compiled program has no bytecode.
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

    `modules` maps each module to the names that are loaded from it, as one text separated by blanks.
    """
    module_of = {name: module for module, lazy in modules.items() for name in lazy.split()}

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"{package} has no public name {name!r}")
        try:
            value = getattr(importlib.import_module(module), name)
        except AttributeError as error:  # an AttributeError would say that the package has no such name
            raise ImportError(f"{module}, which has {package}.{name}, cannot be loaded: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: list(names)
