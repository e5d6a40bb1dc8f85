"""`StoreRates`: counts and durations of the store's writes and reads, and rates from samples of each second.

Source: store/StoreStatsService.java (5.4.0). Rates over 10, 60 and 600 s are returned as texts. Until that much time
has passed, the text is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

SECONDS: Final = (10, 60, 600)
# The names of the counters in putMessageDistributeTime, each with the longest put in ms that it counts.
SPANS: Final = (
    ("[<=0ms]", 0),
    ("[0~10ms]", 9),
    ("[10~50ms]", 49),
    ("[50~100ms]", 99),
    ("[100~200ms]", 199),
    ("[200~500ms]", 499),
    ("[500ms~1s]", 999),
    ("[1~2s]", 1999),
    ("[2~3s]", 2999),
    ("[3~4s]", 3999),
    ("[4~5s]", 4999),
    ("[5~10s]", 9999),
    ("[10s~]", 1 << 62),
)
SPAN_ENDS: Final = tuple(end for _, end in SPANS)
# The upper bounds in ms of the finer ranges of put durations, from which putLatency99 and putLatency999 are computed.
BUCKET_ENDS: Final = (
    *range(1, 21),
    *range(22, 51, 2),
    *range(55, 101, 5),
    *range(110, 201, 10),
    *range(250, 501, 50),
    *range(600, 1001, 100),
    *range(2000, 10001, 1000),
    1 << 62,
)


class Totals(NamedTuple):
    """The values of all counters at the time `at_ms`, each since the broker's start.

    They count stored messages (`put`), reads that found messages (`get_found`) or none (`missed`), messages delivered
    to consumers (`transferred`), and timer messages received and delivered.
    """

    at_ms: int
    put: int
    get_found: int
    missed: int
    transferred: int
    timers_in: int = 0
    timers_out: int = 0


class StoreRates:
    """The store's counters since the start. `take_sample` is called each second, `turn_minute` each minute."""

    def __init__(self) -> None:
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failures = 0
        self.put_longest_ms = 0
        self.found = 0
        self.missed = 0
        self.transferred = 0
        self.get_longest_ms = 0
        self.timers_in = 0
        self.timers_out = 0
        self._samples: deque[Totals] = deque(maxlen=SECONDS[-1] + 1)
        self._buckets = [0] * len(BUCKET_ENDS)
        self._spans = [0] * len(SPANS)
        self._last_buckets = list(self._buckets)
        self._last_spans = list(self._spans)

    def note_put(self, messages: int, size_bytes: int, took_ms: int) -> None:
        self.put_messages += messages
        self.put_bytes += size_bytes
        self.note_put_time(took_ms)

    def note_put_time(self, took_ms: int) -> None:
        if took_ms <= 0:
            self._buckets[0] += 1
            self._spans[0] += 1
            return
        self._buckets[bisect_left(BUCKET_ENDS, took_ms)] += 1
        self._spans[bisect_left(SPAN_ENDS, took_ms)] += 1
        if took_ms > self.put_longest_ms:
            self.put_longest_ms = took_ms

    def note_get(self, messages: int, took_ms: int, *, is_tool: bool = False) -> None:
        """Counts a read, as a miss if it found no messages. Messages for a tool do not count as transferred."""
        if messages:
            self.found += 1
            self.transferred += 0 if is_tool else messages
        else:
            self.missed += 1
        if took_ms > self.get_longest_ms:
            self.get_longest_ms = took_ms

    def take_sample(self, now_ms: int) -> None:
        totals = (self.put_messages, self.found, self.missed, self.transferred, self.timers_in, self.timers_out)
        self._samples.append(Totals(now_ms, *totals))

    def turn_minute(self) -> None:
        """Starts new counts of put durations. `figures` then has the counts of the minute that just ended."""
        self._last_buckets, self._buckets = self._buckets, [0] * len(BUCKET_ENDS)
        self._last_spans, self._spans = self._spans, [0] * len(SPANS)

    def figures(self) -> dict[str, object]:
        return {
            "putMessageEntireTimeMax": self.put_longest_ms,
            "putMessageTimesTotal": self.put_messages or 1,  # at least 1, as in RocketMQ, where it is a divisor
            "putMessageFailedTimes": self.put_failures,
            "putMessageSizeTotal": self.put_bytes,
            "putMessageDistributeTime": "".join(
                f"{name}:{count} " for (name, _), count in zip(SPANS, self._last_spans, strict=True)
            ),
            "putMessageAverageSize": self.put_bytes / (self.put_messages or 1),
            "dispatchMaxBuffer": 0,
            "getMessageEntireTimeMax": self.get_longest_ms,
            "putTps": self._rates(lambda totals: totals.put),
            "getFoundTps": self._rates(lambda totals: totals.get_found),
            "getMissTps": self._rates(lambda totals: totals.missed),
            "getTotalTps": self._rates(lambda totals: totals.get_found + totals.missed),
            "getTransferredTps": self._rates(lambda totals: totals.transferred),
            "putLatency99": f"{self._latency(0.99):.2f}",
            "putLatency999": f"{self._latency(0.999):.2f}",
        }

    def lately(self, count: Callable[[Totals], int]) -> float:
        return self.rate(max(0, min(SECONDS[0], len(self._samples) - 1)), count) or 0.0

    def rate(self, seconds: int, count: Callable[[Totals], int]) -> float | None:
        """Returns a counter's growth per second in the last `seconds`, or None if the samples cover less time.

        `count` selects the counter of a sample.
        """
        samples = self._samples
        if len(samples) <= seconds:
            return None
        first, last = samples[-1 - seconds], samples[-1]
        passed_ms = last.at_ms - first.at_ms
        return (count(last) - count(first)) * 1000 / passed_ms if passed_ms > 0 else 0.0

    def _rates(self, count: Callable[[Totals], int]) -> str:
        rates = [self.rate(seconds, count) for seconds in SECONDS]
        return " ".join("" if rate is None else str(rate) for rate in rates)

    def _latency(self, part: float) -> float:
        wanted, passed, before = int(sum(self._last_buckets) * part), 0, 0
        for end, count in zip(BUCKET_ENDS, self._last_buckets, strict=True):
            if wanted <= passed + count:
                return before + (end - before) * (wanted - passed) / count if count else float(before)
            passed, before = passed + count, end
        return float(before)
