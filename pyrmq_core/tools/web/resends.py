"""`Resends`: sends dead letters again in the background, one run at a time, at a limited rate."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core import Admin, MessageExt, MessageQueue, PullConsumer
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.errors import InvalidArgument, NoRoute, RocketMQError
from pyrmq_core.model import OffsetRange
from pyrmq_core.protocol.messages.names import DLQ_PREFIX
from pyrmq_core.tools.web.change_log import DONE, ChangeLog, ChangeNotLogged, Viewer

# A run ends after this many failures in a row, since further letters would fail, too.
MAX_FAILURES: Final = 10


# Dead letters to send again, as ranges of queues.
Letters = Sequence[tuple[MessageQueue, OffsetRange]]


@dataclass(slots=True)
class Run:
    """The progress of sending a group's dead letters again: how many were sent, were missing, or failed.

    `rate` is in messages a second. `fault` is the last error.
    """

    group: str
    number: int
    rate: int
    sent: int = 0
    missing: int = 0
    failed: int = 0
    fault: str = ""
    is_over: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def text(self) -> str:
        figures = {"sent": self.sent, "number": self.number, "missing": self.missing, "failed": self.failed}
        parts = [Text("{sent:,} of {number:,} dead letters of {group} were sent again", group=self.group, **figures)]
        parts += [Text("{missing:,} are no longer kept", **figures)] if self.missing else []
        parts += [Text("{failed:,} failed, the last with: {fault}", fault=self.fault, **figures)] if self.failed else []
        return joined(parts)


def number_of(letters: Letters) -> int:
    return sum(len(offsets) for _, offsets in letters)


class Resends:
    """The runs in which this server sends dead letters again. `read` returns the message at an offset, or None."""

    def __init__(
        self,
        admin: Admin,
        consumer: PullConsumer,
        read: Callable[[MessageQueue, int], Awaitable[MessageExt | None]],
        log: ChangeLog,
        nursery: trio.Nursery,
    ) -> None:
        self.latest: Run | None = None
        self._admin = admin
        self._consumer = consumer
        self._read = read
        self._log = log
        self._nursery = nursery

    @property
    def running(self) -> Run | None:
        return self.latest if self.latest is not None and not self.latest.is_over else None

    async def every(self, group: str) -> Letters:
        """Returns all current dead letters of a group, or an empty tuple if it has no dead-letter topic."""
        try:
            queues = await self._consumer.message_queues(DLQ_PREFIX + group)
        except NoRoute:
            return ()
        return tuple((await self._consumer.offset_bounds(queues)).items())

    def start(self, group: str, letters: Letters, rate: int) -> None:
        """Starts to send letters again, `rate` a second. Raises `InvalidArgument` while another run is in progress."""
        if self.running is not None:
            raise InvalidArgument(Text("dead letters are being sent again already; wait for their end, or stop it"))
        self.latest = run = Run(group, number_of(letters), rate)
        self._nursery.start_soon(self._run, run, letters)

    def stop(self) -> None:
        if self.latest is not None:
            self.latest.scope.cancel()

    async def _run(self, run: Run, letters: Letters) -> None:
        try:
            with run.scope:
                await self._send_all(run, letters)
        finally:
            run.is_over = True
            with trio.CancelScope(shield=True), contextlib.suppress(ChangeNotLogged):
                entry = await self._log.begin(
                    Viewer(), Text("The end of sending dead letters of {group} again.", group=run.group)
                )
                await self._log.end(entry, DONE, run.text)

    async def _send_all(self, run: Run, letters: Letters) -> None:
        next_at, failures = -math.inf, 0
        for queue, places in letters:
            for offset in range(places.start, places.end):
                await trio.sleep_until(next_at)
                next_at = trio.current_time() + 1 / run.rate
                try:
                    message = await self._read(queue, offset)
                    if message is None:
                        run.missing += 1
                        continue
                    await self._admin.messages.resend(run.group, message)
                except RocketMQError as error:
                    run.failed += 1
                    run.fault = str(error)
                    failures += 1
                    if failures == MAX_FAILURES:
                        return
                else:
                    run.sent += 1
                    failures = 0
