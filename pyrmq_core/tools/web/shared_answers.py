"""`SharedAnswers`: a cache of brokers' answers, so that more viewers cause no more queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import trio

from pyrmq_core.errors import RocketMQError
from pyrmq_core.tools.web.look_up_queue import LookUpQueue, WaitingLookUp

Answer = TypeVar("Answer")

FRESH_SECONDS: Final = 5.0
MAX_ANSWERS: Final = 1000
# The most bytes of bodies and properties in answers that are kept.
MAX_ANSWERS_BYTES: Final = 64 << 20


@dataclass(slots=True)
class _Slot:
    """The cache entry of one key. Once `done` is set, its answer or error is valid until the time `until`.

    `lost` means that the viewer whose request began the look-up has gone, so that another has to begin it.
    """

    look_up: WaitingLookUp = field(default_factory=WaitingLookUp)
    done: trio.Event = field(default_factory=trio.Event)
    until: float = 0.0
    size_bytes: int = 0
    answer: Any = None
    error: RocketMQError | None = None
    lost: bool = False


class SharedAnswers:
    """A cache that keeps the answer of each key for some seconds. Look-ups begin when `LookUpQueue` admits them.

    Viewers that need the same key share one look-up, and its error if it fails. The oldest answers are dropped beyond
    `MAX_ANSWERS` answers or `MAX_ANSWERS_BYTES` in total.
    """

    def __init__(self, queue: LookUpQueue | None = None) -> None:
        self._slots: dict[Hashable, _Slot] = {}
        self._queue = LookUpQueue() if queue is None else queue

    async def get(
        self,
        key: Hashable,
        look_up: Callable[[], Awaitable[Answer]],
        fresh_seconds: float = FRESH_SECONDS,
        *,
        address: str = "",
        size_of: Callable[[Answer], int] = lambda answer: 0,
    ) -> Answer:
        """Returns the cached answer of a key, or the result of `look_up` if it is missing or too old.

        `address` is the viewer's address. `size_of` returns the memory that an answer takes, in bytes. Raises the error
        of `look_up`, or `TooManyLookUps` if it cannot begin in time.
        """
        while True:
            slot = self._slots.get(key)
            if slot is None or (slot.done.is_set() and slot.until <= trio.current_time()):
                return await self._begin(key, look_up, fresh_seconds, address, size_of)
            self._queue.join(slot.look_up, address)
            await slot.done.wait()
            if slot.lost:  # the viewer that started the look-up has gone; another viewer starts it again
                continue
            if slot.error is not None:
                raise slot.error
            answer: Answer = slot.answer
            return answer

    async def once(self, look_up: Callable[[], Awaitable[Answer]], address: str = "") -> Answer:
        """Returns the result of `look_up`, which is not cached. It begins when the queue admits the viewer's `address`.

        Raises `TooManyLookUps` if it cannot begin in time.
        """
        async with self._queue.admitted(WaitingLookUp(), address):
            return await look_up()

    def forget(self) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if not slot.done.is_set()}

    async def _begin(
        self,
        key: Hashable,
        look_up: Callable[[], Awaitable[Answer]],
        fresh_seconds: float,
        address: str,
        size_of: Callable[[Answer], int],
    ) -> Answer:
        slot = _Slot()
        self._slots.pop(key, None)
        self._slots[key] = slot
        self._drop_old()
        try:
            async with self._queue.admitted(slot.look_up, address):
                slot.answer = await look_up()
            slot.size_bytes = size_of(slot.answer)
        except RocketMQError as error:
            slot.error = error
            raise
        except BaseException:
            slot.lost = True
            if self._slots.get(key) is slot:
                del self._slots[key]
            raise
        finally:
            slot.until = trio.current_time() + fresh_seconds
            slot.done.set()
            self._drop_old()
        answer: Answer = slot.answer
        return answer

    def _drop_old(self) -> None:
        now = trio.current_time()
        size_bytes = sum(slot.size_bytes for slot in self._slots.values())
        for key, slot in [(key, slot) for key, slot in self._slots.items() if slot.done.is_set()]:
            if slot.until <= now or len(self._slots) > MAX_ANSWERS or size_bytes > MAX_ANSWERS_BYTES:
                del self._slots[key]
                size_bytes -= slot.size_bytes
