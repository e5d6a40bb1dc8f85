"""Decompresses and decodes message bodies in a worker thread, in short steps.

The producer of a body decides how long its decompression takes, so the event loop's thread does not do it. Of all
readers on a loop, only one runs a step at a time. Other tasks run meanwhile, and a cancelled task ends after its step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Final, TypeVar, TypeVarTuple

import trio

from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull, messages_of
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, has_compressed

Item = TypeVar("Item", bound=Readable)
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

# A step ends when its messages have this many bytes: their bodies, and 256 bytes for all else in each message.
STEP_BYTES: Final = 256 * 1024
MESSAGE_BYTES: Final = 256
# After a step that took longer, the reader pauses for this time, since decoding keeps other threads from running
# Python.
LONG_STEP_SECONDS: Final = 0.05

# The steps that one loop runs at once, so that memory does not grow with the number of readers.
AT_ONCE: Final = 1
_limiter: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("pyrmq_unpacking")


async def in_thread(work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(AT_ONCE)
        _limiter.set(limiter)
    async with limiter:
        return await trio.to_thread.run_sync(work, *arguments)


async def in_steps(items: Iterator[Item], keep: Callable[[Item], Result | None]) -> AsyncGenerator[list[Result], None]:
    """Calls `keep` with each item in a thread, and yields its results that are not None, in lists.

    Each list has the results of one short step. So a caller can store a large body before the next body is
    decompressed.
    """

    def step() -> tuple[list[Result], bool]:
        results: list[Result] = []
        step_bytes = 0
        for item in items:
            step_bytes += MESSAGE_BYTES + _body_bytes(item)
            if (result := keep(item)) is not None:
                results.append(result)
            del item, result
            if step_bytes >= STEP_BYTES:
                return results, False
        return results, True

    is_over = False
    while not is_over:
        began = trio.current_time()
        results, is_over = await in_thread(step)
        yield results
        del results
        if trio.current_time() - began > LONG_STEP_SECONDS:
            await trio.sleep(LONG_STEP_SECONDS)


async def unpacked_messages(
    pull: RawPull, within: OffsetRange, rules: BodyRules, *, allow_gaps: bool
) -> tuple[list[MessageExt], int | None]:
    """Returns the messages of a pull, up to 256 MiB of bodies, and the offset of the first message left out, or None.

    Messages outside the offsets `within` are skipped. An offset without a message raises `DataLost` unless
    `allow_gaps`. Compressed bodies are decompressed in a worker thread.
    """
    if not has_compressed(pull.records):
        return messages_of(pull, within, rules, allow_gaps=allow_gaps)

    def work() -> tuple[list[MessageExt], Any]:
        return messages_of(pull, within, rules, allow_gaps=allow_gaps)

    return await in_thread(work)


def _body_bytes(item: Readable) -> int:
    message = item.message if isinstance(item, UnreadableRecord) else item
    return 0 if message is None else len(message.body)
