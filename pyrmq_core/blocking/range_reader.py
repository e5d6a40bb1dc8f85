"""`RangeReader`: a blocking iterator over a range of offsets, with a call to the library's loop for each element."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Concatenate, Generic, ParamSpec, TypeVar

from pyrmq_core.blocking.face import BlockingFace, OpenContext, blocking_form_of_context
from pyrmq_core.loop_thread.portal import portal

T_open = TypeVar("T_open")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def blocking_reader(
    method: Callable[Concatenate[T_open, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Callable[Concatenate[BlockingFace[T_open], P], RangeReader[R]]:
    return blocking_form_of_context(method, RangeReader)


class RangeReader(OpenContext[AsyncIterator[R]]):
    """A `with` block and iterator over the results of `PullConsumer.read` and similar methods, in offset order.

    Use it as `with consumer.read(q, 0, n) as pulls: for pull in pulls`.
    """

    def __iter__(self) -> Iterator[R]:
        while (element := portal().run(_next_of, self._opened.value)) is not None:
            yield element

    def decoded_in_parts(self, decode: Callable[[R], Iterable[T]]) -> Iterator[T]:
        """Decodes each element with `decode`, which returns several values, and yields the values one at a time.

        No value may be None. `decode` is called in the loop's thread, and must not wait. Decoding in a second thread
        made reading slower, since both threads share the interpreter.
        """
        decoding = _Decoding(self._opened.value, decode)
        while (value := portal().run(decoding.next)) is not None:
            yield value


async def _next_of(elements: AsyncIterator[R]) -> R | None:
    return await anext(elements, None)


class _Decoding(Generic[R, T]):
    def __init__(self, elements: AsyncIterator[R], decode: Callable[[R], Iterable[T]]) -> None:
        self._elements = elements
        self._decode = decode
        self._values: Iterator[T] = iter(())

    async def next(self) -> T | None:
        while (value := next(self._values, None)) is None:
            element = await _next_of(self._elements)
            if element is None:
                return None
            self._values = iter(self._decode(element))
        return value
