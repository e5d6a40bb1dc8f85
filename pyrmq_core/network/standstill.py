"""`sleep_and_hear`: a sleep, after which the caller drops peers that were silent.

If this process was suspended meanwhile, it sleeps again, so that bytes which arrived in that time are read first.
"""

from __future__ import annotations

from typing import Final

import trio

# A sleep that ends this much later was ended by a process that stood still, or was starved, for that time.
LATE_SECONDS: Final = 5.0


async def sleep_and_hear(seconds: float) -> None:
    """Sleeps for `seconds`, and again each time that it wakes over 5 s late, as a suspended or starved process does.

    Bytes that peers sent in that time wait in their connections, and are read during the next sleep.
    """
    while True:
        began = trio.current_time()
        await trio.sleep(seconds)
        if trio.current_time() - began < seconds + LATE_SECONDS:
            return
