"""The loading of `pyrmq_core.columnar` (extra `arrow`) at its first use, so that other programs do not load Arrow."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from pyrmq_core.errors import MissingLibrary


def columnar(users: str = "record batches") -> ModuleType:
    """Returns the package `pyrmq_core.columnar`. Raises `MissingLibrary` if numpy or pyarrow is not installed.

    In the error's text, `users` is the feature that needs them.
    """
    try:
        for library in ("numpy", "pyarrow"):
            import_module(library)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "numpy"):
            raise
        raise MissingLibrary(
            f'{users} need {error.name}, which is not installed: pip install "pyrmq-spark[arrow]"'
        ) from error
    return import_module("pyrmq_core.columnar")
