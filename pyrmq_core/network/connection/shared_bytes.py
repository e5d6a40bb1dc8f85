"""`SharedBytes`: a limit for the memory of all connections of a server, above which the largest are closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)

# Connections are closed until at most this part of the limit is used. Otherwise each further byte would close another.
KEPT_PART: Final = 0.75
# While this part of the limit is used, each connection may queue fewer bytes.
TIGHT_PART: Final = 0.5


class Holder(Protocol):
    @property
    def address(self) -> str: ...

    def close(self, reason: str) -> None: ...


_Holder = TypeVar("_Holder", bound=Holder)


class Reader(Holder, Protocol):
    def free_received(self) -> int: ...


_Reader = TypeVar("_Reader", bound=Reader)


class SharedBytes(Generic[_Holder]):
    """A limit of `most` bytes for the memory that all connections of a server use together.

    Each connection reports its memory by `note`. Above the limit, `held` (unless None) is called with each connection,
    to free its unused buffers. It returns the bytes that the connection still takes. If the total is still too high,
    the connections that take the most are closed. `what` (the kind of bytes) and `setting` (the name of the limit) are
    for the log.
    """

    def __init__(self, most: int, *, what: str, setting: str, held: Callable[[_Holder], int] | None) -> None:
        self.most = most
        self.used = 0
        self._what = what
        self._setting = setting
        self._held = held
        self._noted: dict[_Holder, int] = {}

    @property
    def is_tight(self) -> bool:
        return self.used >= TIGHT_PART * self.most

    def note(self, holder: _Holder, count: int) -> None:
        """Records that a connection takes `count` bytes now. Closes the largest ones if the total exceeds the limit."""
        self.used += count - self._noted.pop(holder, 0)
        if count:
            self._noted[holder] = count
        if self.used > self.most:
            self._relieve()

    def forget(self, holder: _Holder) -> None:
        self.used -= self._noted.pop(holder, 0)

    def _relieve(self) -> None:
        if self._held is not None:
            for holder in list(self._noted):
                self._take(holder, self._held(holder))
            if self.used <= self.most:
                return
        for holder in sorted(self._noted, key=self._noted.__getitem__, reverse=True):
            if self.used <= KEPT_PART * self.most:
                break
            if (count := self._noted.get(holder)) is None:  # it ended meanwhile, when another connection ended
                continue
            reason = (
                f"it holds {count} bytes of {self._what}, and all connections more than {self._setting}={self.most}"
            )
            log.warning("closing the connection with %s: %s", holder.address, reason)
            self._take(holder, 0)
            holder.close(reason)

    def _take(self, holder: _Holder, count: int) -> None:
        self.used += count - self._noted.pop(holder)
        if count:
            self._noted[holder] = count


class Memory(Generic[_Reader]):
    """The two memory limits of a server, each for all its connections together.

    `received` is for unfinished frames and unanswered requests, `waiting` for answers that clients have not read yet.
    """

    def __init__(self, max_received_bytes: int, max_waiting_bytes: int) -> None:
        self.received: SharedBytes[_Reader] = SharedBytes(
            max_received_bytes,
            what="unfinished frames and unanswered requests",
            setting="serverMaxReceivedBytes",
            held=lambda connection: connection.free_received(),
        )
        self.waiting: SharedBytes[_Reader] = SharedBytes(
            max_waiting_bytes,
            what="answers that it does not read",
            setting="serverMaxWaitingBytes",
            held=None,
        )

    def note_waiting(self, connection: _Reader, count: int) -> bool:
        """Records that `count` bytes of answers are queued for a connection.

        Returns True if at least half of the limit for all connections is used. The connection then has to queue less.
        """
        self.waiting.note(connection, count)
        return self.waiting.is_tight

    def forget(self, connection: _Reader) -> None:
        self.received.forget(connection)
        self.waiting.forget(connection)
