"""`BlockingFace`, the base of the blocking classes, and functions that make their methods from the trio methods."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
V = TypeVar("V")


class BlockingFace(Generic[T]):
    """The base of the blocking classes: a wrapper of an async object that runs on the library's trio loop.

    `open`, `with` or the first call opens the async object.
    """

    def __init__(self) -> None:
        self._opened: HeldContext[T] | None = None
        self._pid = 0
        self._closed = False

    def _make(self) -> AbstractAsyncContextManager[T]:
        raise NotImplementedError

    def open(self) -> Self:
        """Opens the wrapped object now. Otherwise `with` or the first call of another method opens it."""
        self._async()
        return self

    def close(self) -> None:
        """Closes the wrapped object as the async class does, after its sends or handlers have ended.

        A second call does nothing.
        """
        opened, self._opened, self._closed = self._opened, None, True
        if opened is not None and self._pid == os.getpid():
            opened.close(self._closing_seconds(opened))

    def _closing_seconds(self, opened: HeldContext[T]) -> float:
        return 0.0

    def _opened_now(self, opened: HeldContext[T]) -> None:
        """Runs as soon as the async object is open. Subclasses override it."""

    def _service_state(self) -> ServiceState:
        if self._closed:
            return ServiceState.SHUTDOWN_ALREADY
        opened = self._opened is not None and self._pid == os.getpid()
        return ServiceState.RUNNING if opened else ServiceState.CREATE_JUST

    def __enter__(self) -> Self:
        return self.open()

    async def __aenter__(self) -> NoReturn:
        name = type(self).__name__
        raise InvalidState(
            f"this {name} of pyrmq_core.blocking is opened by `with`; the {name} that `async with` opens is that of "
            "pyrmq_core.aio under asyncio, of pyrmq_core under trio"
        )

    async def __aexit__(self, *_: object) -> None:
        """Does nothing, since `__aenter__` raises."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._opened is not None and self._pid == os.getpid():
            self._opened.abandon()
        self.close()

    def _async(self) -> T:
        if self._closed:
            raise InvalidState(f"{self!r} is closed; make a new one")
        opened = self._opened
        if opened is None or self._pid != os.getpid():
            portal().check_outside()
            with _lock:
                opened = self._opened
                if opened is None or self._pid != os.getpid():
                    opened = HeldContext(portal(), self._make())
                    self._opened_now(opened)
                    self._opened, self._pid = opened, os.getpid()
        return opened.value

    def _run(self, call: Callable[[T], Awaitable[R]]) -> R:
        return portal().run(call, self._async())


class Runner(Protocol[T_co]):
    """An object with a method `_run`, which runs a coroutine function on an async object and returns the result."""

    def _run(self, call: Callable[[T_co], Awaitable[R]]) -> R: ...


def blocking_form(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Runner[T], P], R]:
    """Returns a method for a blocking class, which runs the async `method` on the library's loop and waits for its end.

    The two methods have the same parameters, result and docstring.
    """

    @wraps(method)
    def call(self: Runner[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda opened: method(opened, *args, **kwargs))

    return call


def blocking_form_of_function(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Runner[T], P], R]:
    """Returns a method for a blocking class, which calls the function `method` on the library's loop."""

    @wraps(method)
    def call(self: Runner[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_loop(opened: T) -> R:
            return method(opened, *args, **kwargs)

        return self._run(on_loop)

    return call


class OpenContext(Generic[T]):
    """A context manager that closes an async context manager, which is already open on the library's loop."""

    def __init__(self, opened: HeldContext[T]) -> None:
        self._opened = opened

    def close(self) -> None:
        """Cancels the requests that still run in the async context manager, and closes it."""
        self._opened.abandon()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Callable[[T], Awaitable[R]]) -> R:
        return portal().run(call, self._opened.value)


def blocking_form_of_context(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[V]],
    form: Callable[[HeldContext[V]], R],
) -> Callable[Concatenate[BlockingFace[T], P], R]:
    """Returns a method for a blocking class, made from a `method` that returns an async context manager.

    A call of the new method enters the context manager on the library's loop, and returns `form(opened)`. The object
    that `form` returns must close `opened`.
    """

    @wraps(method)
    def call(self: BlockingFace[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return form(HeldContext(portal(), method(self._async(), *args, **kwargs)))

    return call


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


_lock = threading.RLock()
os.register_at_fork(after_in_child=_new_lock)
