"""`SharedAnswers`: answers of brokers that all viewers share, so that many viewers cost brokers no more than one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import trio

from pyrmq_core.errors import RocketMQError

Answer = TypeVar("Answer")

FRESH_SECONDS: Final = 5.0
LOOK_UPS_A_SECOND: Final = 20.0
# So many look-ups may begin at once after a quiet time.
BURST: Final = 40
LOOK_UPS_AT_ONCE: Final = 8
LONGEST_WAIT_SECONDS: Final = 5.0
MAX_ANSWERS: Final = 1000


class TooManyLookUps(Exception):
    """The look-ups of all viewers together reached their rate; this one was not begun."""


@dataclass(slots=True)
class _Slot:
    """One key's look-up: under way until `done` is set, then an answer or the error that it ended with."""

    done: trio.Event = field(default_factory=trio.Event)
    until: float = 0.0
    answer: Any = None
    error: RocketMQError | None = None
    lost: bool = False


class SharedAnswers:
    """Keeps each key's answer for some seconds, and begins at most `LOOK_UPS_A_SECOND` look-ups in all.

    Viewers of one key share one look-up, also its error. `MAX_ANSWERS` are kept, the oldest go first.
    """

    def __init__(self) -> None:
        self._slots: dict[Hashable, _Slot] = {}
        self._room = trio.CapacityLimiter(LOOK_UPS_AT_ONCE)
        self._allowance = float(BURST)
        self._allowed_at = 0.0

    async def get(
        self, key: Hashable, look_up: Callable[[], Awaitable[Answer]], fresh_seconds: float = FRESH_SECONDS
    ) -> Answer:
        """Returns the key's answer, looked up now if it is not fresh; raises the error that the look-up ended with.

        Raises `TooManyLookUps` when it could not begin within `LONGEST_WAIT_SECONDS`.
        """
        while True:
            slot = self._slots.get(key)
            if slot is None or (slot.done.is_set() and slot.until <= trio.current_time()):
                return await self._begin(key, look_up, fresh_seconds)
            await slot.done.wait()
            if slot.lost:  # the viewer that asked has gone; another one asks anew
                continue
            if slot.error is not None:
                raise slot.error
            found: Answer = slot.answer
            return found

    def forget(self) -> None:
        """Forgets the answers, after a change: the next viewer sees it."""
        self._slots = {key: slot for key, slot in self._slots.items() if not slot.done.is_set()}

    async def _begin(self, key: Hashable, look_up: Callable[[], Awaitable[Answer]], fresh_seconds: float) -> Answer:
        slot = _Slot()
        self._slots.pop(key, None)
        self._slots[key] = slot
        self._drop_oldest()
        try:
            await self._wait_for_turn()
            async with self._room:
                slot.answer = await look_up()
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
        found: Answer = slot.answer
        return found

    def _drop_oldest(self) -> None:
        for key in [key for key, slot in self._slots.items() if slot.done.is_set()]:
            if len(self._slots) <= MAX_ANSWERS:
                return
            del self._slots[key]

    async def _wait_for_turn(self) -> None:
        now = trio.current_time()
        self._allowance = min(BURST, self._allowance + (now - self._allowed_at) * LOOK_UPS_A_SECOND)
        self._allowed_at = now
        wait = max(0.0, (1 - self._allowance) / LOOK_UPS_A_SECOND)
        if wait > LONGEST_WAIT_SECONDS:
            raise TooManyLookUps
        self._allowance -= 1
        await trio.sleep(wait)
