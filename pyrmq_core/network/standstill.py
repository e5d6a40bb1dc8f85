"""A sleep before silent peers are dropped, which after a suspension of this process leaves time to read their bytes."""

from __future__ import annotations

from typing import Final

import trio

# A sleep that ends this much later was ended by a process that stood still, or was starved, for that time.
LATE_SECONDS: Final = 5.0


async def sleep_and_hear(seconds: float) -> None:
    """Sleeps for some seconds, and again if this process was suspended meanwhile and woke much too late.

    Bytes that peers sent in that time wait in their connections, and are read during the second sleep.
    """
    while True:
        began = trio.current_time()
        await trio.sleep(seconds)
        if trio.current_time() - began < seconds + LATE_SECONDS:
            return
