"""`HealthLooks`: health checks of the cluster, made each minute while the server's first page is viewed."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from pyrmq_core.errors import RocketMQError
from pyrmq_core.tools.web.look_up_queue import TooManyLookUps
from pyrmq_core.tools.web.rendering import link

if TYPE_CHECKING:
    from pyrmq_core.client.admin.health_rules import Health, HealthCheck

LOOK_SECONDS: Final = 60.0
VIEWED_SECONDS: Final = 900.0
# How many health checks are kept. A new one is compared with the oldest.
LOOKS_KEPT: Final = 10
# The time for which a page waits for a first health check.
PATIENCE_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 1.0
MOST_LINES: Final = 20


class HealthLooks:
    """The latest health check of the cluster, repeated each minute while a page shows it.

    `take` makes a check. Its argument is the oldest of the last `LOOKS_KEPT` checks, to compare with, or None.
    """

    def __init__(self, take: Callable[[Health | None], Awaitable[Health]]) -> None:
        self._take = take
        self._looks: deque[Health] = deque(maxlen=LOOKS_KEPT)
        self._viewed_until = 0.0
        self._viewed = trio.Event()
        self._looked = trio.Event()
        self.error: RocketMQError | None = None

    @property
    def latest(self) -> Health | None:
        return self._looks[-1] if self._looks and self.error is None else None

    async def view(self) -> None:
        """Keeps health checks running for `VIEWED_SECONDS`. Waits up to `PATIENCE_SECONDS` for the first result."""
        self._viewed_until = trio.current_time() + VIEWED_SECONDS
        self._viewed.set()
        if not self._looked.is_set():
            with trio.move_on_after(PATIENCE_SECONDS):
                await self._looked.wait()

    async def look_up(self) -> None:
        while True:
            await self._viewed.wait()
            next_at = trio.current_time() + LOOK_SECONDS
            try:
                self._looks.append(await self._take(self._looks[0] if self._looks else None))
                self.error = None
                self._looked.set()
            except TooManyLookUps:
                next_at = trio.current_time() + AGAIN_SECONDS
            except RocketMQError as error:
                self.error = error
                self._looked.set()
            if trio.current_time() > self._viewed_until:  # so that a later view does not begin with an old check
                self._looks.clear()
                self.error = None
                self._viewed, self._looked = trio.Event(), trio.Event()
                continue
            await trio.sleep_until(next_at)


def address_of(check: HealthCheck) -> str:
    """Returns the path of the page about a health check's subject, such as a group, or an empty text if it has none."""
    match check.check:
        case _ if not check.subject or check.check == "nameserver":
            return ""
        case "lag" | "members":
            return link("/group", group=check.subject)
        case "letters":
            return link("/dead-letters", group=check.subject)
        case "order":
            return link("/topic", topic=check.subject)
        case _:
            return link("/", filter=check.subject)
