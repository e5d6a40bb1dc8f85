"""A sleep for tasks that drop silent peers: after a standstill, this process first reads what they sent."""

from __future__ import annotations

from typing import Final

import trio

# A sleep that ends this much later was ended by a process that stood still, or was starved, for that time.
LATE_SECONDS: Final = 5.0


async def sleep_and_hear(seconds: float) -> None:
    """Sleeps for some seconds. After a standstill of the process it sleeps once more.

    What peers sent meanwhile waits in their connections, and is read during the second sleep.
    """
    while True:
        began = trio.current_time()
        await trio.sleep(seconds)
        if trio.current_time() - began < seconds + LATE_SECONDS:
            return
