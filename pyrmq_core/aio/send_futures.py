"""The asyncio futures of background sends: the failures that the program never looked at are counted and reported.

asyncio itself reports each dropped one to its loop's exception handler. Beside that, the library logs a line of its own
now and then, and the number at the producer's end.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailure, UnseenFailures
from pyrmq_core.errors import RocketMQError


class SendFutures:
    """The futures of one producer."""

    def __init__(self, group: str) -> None:
        self.failures = UnseenFailures(group)
        self.failed: WeakSet[SendFuture] = WeakSet()

    def new(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Returns the future of a send that begins."""
        return SendFuture(self, loop)

    def report(self) -> None:
        """Logs at the producer's end how many failures the program has not looked at."""
        for future in self.failed:
            future.note_look()
        self.failures.report()


class SendFuture(asyncio.Future[Any]):
    """A future that notes when it is dropped whether the program looked at its failure."""

    __slots__ = ("_futures", "_unseen")

    def __init__(self, futures: SendFutures, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._futures = futures
        self._unseen: UnseenFailure | None = None

    def failed(self, error: RocketMQError) -> None:
        """Counts the error that becomes the future's exception."""
        self._unseen = self._futures.failures.failed(error)
        self._futures.failed.add(self)

    def note_look(self) -> None:
        """Takes the failure from the count if the program has looked at it, which asyncio notes for itself."""
        if self._unseen is not None and not self._log_traceback:
            self._unseen.look()

    def __del__(self) -> None:
        self.note_look()
        super().__del__()
