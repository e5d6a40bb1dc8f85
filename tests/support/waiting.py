"""Waiting for a condition that no event announces, with a deadline."""

from collections.abc import Callable

import trio

POLL_SECONDS = 0.01


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Returns when the condition holds; raises `trio.TooSlowError` after so many seconds."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - the other side is a server or a thread that sets no event
            await trio.sleep(POLL_SECONDS)
