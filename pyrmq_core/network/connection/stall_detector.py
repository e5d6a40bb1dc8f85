"""The detection of connections that idle, wait too long for the rest of a frame, or have a peer that does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FRAME_TIMEOUT_SECONDS: Final = 30.0
STALL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionActivity:
    """A connection's activity at the time of a check.

    `received` (reads that returned bytes), `commands` (frames that were read) and `written_bytes` are totals since the
    connection opened. `frame_bytes` is the received part of an incomplete frame, `queued_bytes` has yet to be written.
    `busy` is True while requests or calls are open. `reading` is False while the connection intentionally does not
    read.
    """

    received: int
    commands: int
    written_bytes: int
    frame_bytes: int
    queued_bytes: int
    busy: bool
    reading: bool


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """The times, in seconds, after which a connection is closed.

    `idle` limits the time without traffic and open requests (None: no limit), `frame` the time to receive a complete
    frame. `stall` limits the time in which a peer reads none of the bytes queued for it.
    """

    idle: float | None = None
    frame: float = FRAME_TIMEOUT_SECONDS
    stall: float = STALL_SECONDS

    @property
    def look_seconds(self) -> float:
        """The interval between checks in seconds: short enough that no limit is exceeded by more than a quarter."""
        return min(self.frame, self.stall, self.idle or self.frame) / 4


class StallDetector:
    """A detector of one connection's timeouts, which compares its activity with that at the previous check.

    `check` returns the reason to close the connection, or None. `now` is in seconds of a monotonic clock.
    """

    def __init__(self, limits: ConnectionTimeouts) -> None:
        self._limits = limits
        self._signs: ConnectionActivity | None = None
        self._quiet_since = self._frame_since = self._stalled_since = 0.0

    def check(self, signs: ConnectionActivity, now: float) -> str | None:
        last, self._signs = self._signs, signs
        if last is None:
            self._quiet_since = self._frame_since = self._stalled_since = now
            return None
        if signs.received != last.received or signs.written_bytes != last.written_bytes or signs.busy:
            self._quiet_since = now
        if not (signs.frame_bytes and last.frame_bytes and signs.reading) or signs.commands != last.commands:
            self._frame_since = now
        if not (signs.queued_bytes and last.queued_bytes) or signs.written_bytes != last.written_bytes:
            self._stalled_since = now
        limits = self._limits
        if limits.idle is not None and now - self._quiet_since >= limits.idle:
            return f"nothing came or went for {limits.idle:g} s"
        if now - self._frame_since >= limits.frame:
            return f"the other end did not complete a frame within {limits.frame:g} s"
        if now - self._stalled_since >= limits.stall:
            return f"the other end read nothing for {limits.stall:g} s"
        return None

    def is_quiet(self, now: float) -> bool:
        return self._quiet_since < now
