"""`parameters_of`: constructors whose parameters are the fields of a settings class, for trio, blocking and asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Concatenate, ParamSpec, TypeVar

from pyrmq_core.client.client_settings import ClientSettings

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def parameters_of(settings: Callable[P, S]) -> Callable[[Callable[[T, S], None]], Callable[Concatenate[T, P], None]]:
    """Returns a decorator for an `__init__` that takes one settings value.

    Its callers pass the parameters of the settings class instead, and the decorator creates the value. Type checkers,
    `help` and `inspect.signature` show these parameters with their defaults.
    """

    def decorate(initialise: Callable[[T, S], None]) -> Callable[Concatenate[T, P], None]:
        def constructed(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:  # its text names the settings class instead of the public class
                raise TypeError(f"{type(self).__name__}: {error}{_belongs_to_client(kwargs, signature)}") from None
            initialise(self, settings(*args, **kwargs))

        named = getattr(settings, "__origin__", settings)  # of `Settings[Client]`, the class `Settings`
        signature = inspect.signature(named)
        constructed.__wrapped__ = named.__init__  # type: ignore[attr-defined]  # `inspect.signature` looks here
        constructed.__name__, constructed.__qualname__ = initialise.__name__, initialise.__qualname__
        return constructed

    return decorate


def _belongs_to_client(names: Iterable[str], signature: inspect.Signature) -> str:
    named = [name for name in names if name not in signature.parameters and name in CLIENT_NAMES]
    if not named:
        return ""
    given = ", ".join(f"{name}=..." for name in named)
    return f"; {', '.join(named)} belongs to the Client, which others share: client=Client(nameserver=..., {given})"


CLIENT_NAMES = frozenset(inspect.signature(ClientSettings).parameters)
