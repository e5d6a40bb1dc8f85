"""The blocking families of `Admin`, made from the trio ones: a line for each method, no second implementation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.admin.admin import Admin as AsyncAdmin
from pyrmq_core.client.admin.topics import Topics as AsyncTopics

F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")


class BlockingFamily(Generic[F]):
    """A family of an `Admin` that may not be open yet; its first call opens it."""

    def __init__(self, face: BlockingFace[AsyncAdmin], family_of: Callable[[AsyncAdmin], F]) -> None:
        self._face = face
        self._family_of = family_of


def blocking_form(
    method: Callable[Concatenate[F, P], Awaitable[R]],
) -> Callable[Concatenate[BlockingFamily[F], P], R]:
    """Returns the method of a blocking family with the same parameters and docstring, which waits for the result."""

    @wraps(method)
    def call(self: BlockingFamily[F], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._face._run(lambda admin: method(self._family_of(admin), *args, **kwargs))

    return call


class Topics(BlockingFamily[AsyncTopics]):
    """The blocking form of `pyrmq_core.Admin.topics`."""

    list = blocking_form(AsyncTopics.list)
    __call__ = blocking_form(AsyncTopics.__call__)
