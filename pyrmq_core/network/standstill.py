"""`sleep_and_hear`: the sleep of a task between its checks for silent peers, which it drops.

If this process was suspended meanwhile, it sleeps again, so that bytes of peers are read before the check.
"""

from __future__ import annotations

from typing import Final

import trio

# If a sleep ends later than planned by this time, the process was suspended or got no processor time.
LATE_SECONDS: Final = 5.0


async def sleep_and_hear(seconds: float) -> None:
    """Sleeps for `seconds`, and again if it wakes over 5 s late, as after a suspension of this process."""
    while True:
        began = trio.current_time()
        await trio.sleep(seconds)
        if trio.current_time() - began < seconds + LATE_SECONDS:
            return
