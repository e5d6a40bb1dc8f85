"""`AsyncioFace`, the base of the asyncio classes, and functions that make their methods from the trio methods."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from pyrmq_core.aio.loop_returns import close_held, here, on_library_loop, returned
from pyrmq_core.client.async_only import AsyncOnly
from pyrmq_core.client.client import Client as TrioClient
from pyrmq_core.client.service_state import ServiceState
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class AsyncioFace(AsyncOnly, Generic[T]):
    """The base of the asyncio classes: a wrapper of a trio object that runs on the library's trio loop.

    `async with`, `await open()` or the first call opens the trio object. Several asyncio loops may share one wrapper.
    In a child process after `fork`, a wrapper that the parent opened raises `InvalidState`: create another one there.
    """

    def __init__(self, make: Callable[[TrioClient | None], T], client: AsyncioFace[TrioClient] | None) -> None:
        self._make = make
        self._client = client
        self._held: HeldContext[T] | None = None
        self._closed = False
        if client is None:
            make(None)  # raises for wrong arguments now, instead of at the first call

    async def open(self) -> Self:
        """Opens the wrapped object now. Otherwise `async with` or the first call of another method opens it."""
        await self._async()
        return self

    async def close(self) -> None:
        """Closes the wrapped object as the trio class does, after its sends or handlers have ended.

        A second call does nothing.
        """
        held, self._held, self._closed = self._held, None, True
        if held is not None:
            await close_held(held, self._closing_seconds(held))

    def _closing_seconds(self, held: HeldContext[T]) -> float:
        return 0.0

    def _opens_here(self) -> None:
        """Runs before the trio object opens, in the asyncio task that opens it. Subclasses override it."""

    def _opened_now(self, held: HeldContext[T]) -> None:
        """Runs in the library's loop as soon as the trio object is open. Subclasses override it."""

    def _service_state(self) -> ServiceState:
        if self._closed:
            return ServiceState.SHUTDOWN_ALREADY
        held = self._held
        return ServiceState.RUNNING if held is not None and held.is_open else ServiceState.CREATE_JUST

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            held = self._held
            if held is not None and not held.has_opened:
                self._held = None
                held.abandon()
                await close_held(held)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._held is not None:
            self._held.abandon()
        await self.close()

    async def _async(self) -> T:
        """Returns the trio object, after opening it if needed.

        If a caller is cancelled during the opening, the next caller completes it.
        """
        held = self._held
        if held is not None and held.has_opened:
            return held.value
        here()
        client = None if self._client is None else await self._client._async()
        held = self._begun(client)
        await returned(held.opening)
        return held.value

    def _begun(self, client: TrioClient | None) -> HeldContext[T]:
        with _lock:
            if self._closed:
                raise InvalidState(f"{self!r} is closed; make a new one")
            held = self._held
            if held is None or (held.opening.done() and not held.has_opened):
                self._opens_here()
                held = self._held = HeldContext(portal(), self._make(client), wait=False)
                held.opening.add_done_callback(partial(self._opening_ended, held))
            return held

    def _opening_ended(self, held: HeldContext[T], opening: Future[T]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._opened_now(held)

    async def _run(self, call: Callable[[T], Awaitable[R]]) -> R:
        return await on_library_loop(call, await self._async())


def asyncio_form(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[AsyncioFace[T], P], Coroutine[Any, Any, R]]:
    """Returns a method for an asyncio class, which awaits the trio `method` on the library's trio loop.

    The two methods have the same arguments, result and docstring.
    """

    @wraps(method)
    async def called(self: AsyncioFace[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await on_library_loop(partial(method, await self._async(), *args, **kwargs))

    return called


def asyncio_form_of_function(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[AsyncioFace[T], P], Coroutine[Any, Any, R]]:
    """Returns a coroutine method for an asyncio class, which calls the function `method` on the library's trio loop."""

    @wraps(method)
    async def called(self: AsyncioFace[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def call(opened: T) -> R:
            return method(opened, *args, **kwargs)

        return await on_library_loop(call, await self._async())

    return called


def asyncio_form_of_iterator(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Callable[Concatenate[AsyncioFace[T], P], AsyncioIterator[R]]:
    return asyncio_form_of_context(method, AsyncioIterator)


def asyncio_form_of_context(
    method: Callable[Concatenate[T, P], AbstractAsyncContextManager[V]],
    form: Callable[[Callable[[], Awaitable[AbstractAsyncContextManager[V]]]], R],
) -> Callable[Concatenate[AsyncioFace[T], P], R]:
    """Returns a method for an asyncio class, made from a trio `method` that returns a context manager.

    A call of the new method returns `form(make)`. Awaiting `make()` opens the trio object if needed, and returns the
    context manager, which is not entered yet.
    """

    @wraps(method)
    def called(self: AsyncioFace[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def manager() -> AbstractAsyncContextManager[V]:
            return method(await self._async(), *args, **kwargs)

        return form(manager)

    return called


class _End: ...


_END: Final = _End()


class LoopElements(Generic[R]):
    """An async iterator of the library's trio loop, which tasks of an asyncio loop can read.

    If a task is cancelled while it waits for an element, the next call of `next` returns this element, so none is lost.
    """

    def __init__(self, elements: AsyncIterator[R]) -> None:
        self._elements = elements
        self._left: deque[Future[R | _End]] = deque()  # elements for which a cancelled task waited

    async def next(self) -> R:
        """Returns the next element. Raises `StopAsyncIteration` after the last."""
        fetched = self._left.popleft() if self._left else portal().submit(self._fetch)
        try:
            element = await returned(fetched)
        except BaseException:
            if not fetched.done() or fetched.exception() is None:
                self._left.appendleft(fetched)
            raise
        if isinstance(element, _End):
            raise StopAsyncIteration
        return element

    async def _fetch(self) -> R | _End:
        try:
            return await anext(self._elements)
        except StopAsyncIteration:
            return _END


class LoopContext(Generic[R]):
    """The asyncio form of an async context manager that must be entered on the library's trio loop."""

    _USE = "read it in its block: async with ... as pulls: async for pull in pulls"

    def __init__(self, manager: Callable[[], Awaitable[AbstractAsyncContextManager[R]]]) -> None:
        self._manager = manager
        self._held: HeldContext[R] | None = None

    async def __aenter__(self) -> Self:
        self._held = await opened(await self._manager())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.abandon()
            await close_held(self._held)

    def _entered(self) -> R:
        if self._held is None:
            raise InvalidState(self._USE)
        return self._held.value


class AsyncioIterator(LoopContext[AsyncIterator[R]], AsyncIterator[R]):
    """An async iterator, for an asyncio program, over the results of `PullConsumer.read` and similar methods.

    Use it as `async with consumer.read(...) as pulls: async for pull in pulls`.
    """

    _elements: LoopElements[R] | None = None

    async def __anext__(self) -> R:
        if self._elements is None:
            self._elements = LoopElements(self._entered())
        return await self._elements.next()


async def opened(manager: AbstractAsyncContextManager[R]) -> HeldContext[R]:
    """Enters the context manager on the library's trio loop, and returns a handle that the caller has to close."""
    held = HeldContext(portal(), manager, wait=False)
    try:
        await returned(held.opening)
    except BaseException:
        held.abandon()
        raise
    return held


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


_lock = threading.Lock()
os.register_at_fork(after_in_child=_new_lock)
