"""`LagHistory`: the lag of groups over time, while its page is viewed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

SAMPLE_SECONDS: Final = 10.0
# A group is sampled so long after its page was shown last.
WATCHED_SECONDS: Final = 900.0
MAX_GROUPS: Final = 50
# 3 hours at one sample in 10 s.
MAX_SAMPLES: Final = 1080


@dataclass(slots=True)
class _Samples:
    watched_until: float
    points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))


class LagHistory:
    """The samples of the groups that were looked at last; times are handed in. `MAX_GROUPS` are kept."""

    def __init__(self) -> None:
        self._groups: dict[str, _Samples] = {}

    def watch(self, group: str, now: float) -> None:
        """Has the group sampled for a while; the one that was looked at longest ago gives way."""
        samples = self._groups.pop(group, None) or _Samples(0)
        samples.watched_until = now + WATCHED_SECONDS
        self._groups[group] = samples
        if len(self._groups) > MAX_GROUPS:
            del self._groups[next(iter(self._groups))]

    def watched(self, now: float) -> tuple[str, ...]:
        """Returns the groups to sample now."""
        return tuple(group for group, samples in self._groups.items() if samples.watched_until > now)

    def add(self, group: str, seconds: float, lag: int) -> None:
        """Adds one sample, `seconds` since 1970; a group that is watched no longer takes none."""
        samples = self._groups.get(group)
        if samples is not None and (not samples.points or samples.points[-1][0] < seconds):
            samples.points.append((seconds, lag))

    def points(self, group: str) -> Iterable[tuple[float, int]]:
        """Returns the group's samples, oldest first."""
        samples = self._groups.get(group)
        return () if samples is None else tuple(samples.points)
