"""Public names of a package that are loaded at their first use (PEP 562): a process imports only what it uses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_when_named(
    package: str, names: Sequence[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's `__getattr__` and `__dir__`; `modules` maps each lazy name to its module, imported once."""

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"{package} has no public name {name!r}")
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: list(names)
