"""`AsyncOnly`: the base of classes for `async with`. A plain `with` raises an error with advice."""

from __future__ import annotations

from typing import NoReturn

from pyrmq_core.errors import InvalidState


class AsyncOnly:
    """The base of classes for `async with`. Using them in a plain `with` raises `InvalidState` with advice."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        name = type(self).__name__
        raise InvalidState(
            f"this {name} is opened by `async with`, in an async function; the {name} that `with` opens is that of "
            "pyrmq_core.blocking"
        )

    def __exit__(self, *_: object) -> None:
        """Does nothing, since `__enter__` raises."""
