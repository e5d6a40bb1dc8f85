"""`History`: figures over time for the charts on pages: a group's lag, the rates of a cluster or a topic.

`AcknowledgedRates` computes from the offsets of two look-ups how fast groups acknowledge. No broker reports that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import GroupProgress

SAMPLE_SECONDS: Final = 10.0
# How long a curve is sampled every 10 s after its page was last shown. Until an hour after, it is sampled every 60 s.
WATCHED_SECONDS: Final = 900.0
REMEMBERED_SECONDS: Final = 3600.0
SELDOM_SECONDS: Final = 60.0
MAX_CURVES: Final = 50
# The most lines of a curve. If a topic has more groups, those in its latest samples are drawn.
MAX_LINES: Final = 8
# The most samples of a curve: one in 10 s for 3 hours.
MAX_SAMPLES: Final = 1080
# The shortest time over which a rate is computed. Members commit offsets every 5 s, so a rate over less would jump.
RATED_OVER: Final = timedelta(seconds=30)
# Offsets that are older than this are not used for a rate.
FORGOTTEN_AFTER: Final = timedelta(seconds=150)
# The most keys of `AcknowledgedRates`: groups, or groups of a topic.
MAX_RATED: Final = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a chart. `kind` is lag, cluster or topic, and `name` the name of the group, cluster or topic."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of a curve's lines (`figures`) at one time (`seconds` since 1970)."""

    seconds: float
    figures: Mapping[str, float]


@dataclass(slots=True)
class _Samples:
    watched_until: float
    remembered_until: float = 0.0
    seldom_at: float = 0.0
    kept: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))


class History:
    """The samples of the curves that pages showed, at most `MAX_CURVES`. The current time is always an argument."""

    def __init__(self) -> None:
        self.acknowledged = AcknowledgedRates()
        self._curves: dict[Curve, _Samples] = {}

    def watch(self, curve: Curve, now: float) -> None:
        """Records that a page shows the curve, so that `due` returns it for a while.

        Beyond `MAX_CURVES` curves, the one that was shown longest ago is dropped.
        """
        samples = self._curves.pop(curve, None) or _Samples(0)
        samples.watched_until, samples.remembered_until = now + WATCHED_SECONDS, now + REMEMBERED_SECONDS
        self._curves[curve] = samples
        if len(self._curves) > MAX_CURVES:
            del self._curves[next(iter(self._curves))]

    def due(self, now: float) -> tuple[Curve, ...]:
        """Returns the curves to sample now. A curve that is no longer watched is due once in `SELDOM_SECONDS`."""
        due = []
        for curve, samples in self._curves.items():
            if samples.watched_until > now or samples.remembered_until > now >= samples.seldom_at:
                samples.seldom_at = now + SELDOM_SECONDS
                due.append(curve)
        return tuple(due)

    def add(self, curve: Curve, sample: Sample) -> None:
        """Adds a sample to a curve in memory, if it is later than the curve's last sample."""
        samples = self._curves.get(curve)
        if samples is not None and (not samples.kept or samples.kept[-1].seconds < sample.seconds):
            samples.kept.append(sample)

    def columns(self, curve: Curve) -> tuple[list[float], dict[str, list[float | None]]]:
        samples = self._curves.get(curve)
        kept = () if samples is None else tuple(samples.kept)
        lines = list(dict.fromkeys(line for sample in reversed(kept) for line in sample.figures))[:MAX_LINES]
        return [sample.seconds for sample in kept], {
            line: [sample.figures.get(line) for sample in kept] for line in lines
        }


class AcknowledgedRates:
    """The rates at which groups acknowledge, in messages a second, each under a key that the caller chooses.

    A rate is usually computed over the last 30 s to 60 s. Beyond `MAX_RATED` keys, the oldest are dropped.
    """

    def __init__(self) -> None:
        self._looks: dict[Hashable, tuple[GroupProgress, GroupProgress]] = {}
        self._rates: dict[Hashable, float | None] = {}

    def add(self, key: Hashable, progress: GroupProgress) -> None:
        """Records the present offsets of the group with this key, and computes its rate since an earlier call.

        `progress` must be later than in the call before.
        """
        look = replace(progress, description=None, reasons=())
        older, newer = self._looks.pop(key, (look, look))
        if look.at - newer.at > FORGOTTEN_AFTER:
            older = newer = look
        self._rates[key] = look.acknowledged_tps(older)
        self._looks[key] = (newer, look) if look.at - newer.at >= RATED_OVER else (older, newer)
        if len(self._looks) > MAX_RATED:
            oldest = next(iter(self._looks))
            del self._looks[oldest], self._rates[oldest]

    def get(self, key: Hashable) -> float | None:
        return self._rates.get(key)
