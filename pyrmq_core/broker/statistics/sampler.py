"""`sample_figures`: the task that samples the broker's figures at their intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date, datetime
from typing import Final

import trio

from pyrmq_core.broker.statistics.figures import BrokerFigures
from pyrmq_core.broker.statistics.tallies import DAY, PERIODS, SECOND_MS
from pyrmq_core.broker.turns import take_all

MINUTE_SECONDS: Final = 60


async def sample_figures(
    figures: BrokerFigures, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> None:
    """Samples until cancelled: the store's rates each second, the tallies every 10 s, 10 minutes and hour.

    Each second it also removes the tallies of deleted topics and groups.
    """
    beat, today, began = 0, _day(now_ms()), trio.current_time()
    while True:
        figures.store.take_sample(now_ms())
        await take_all(figures.forget_deleted())
        for period in PERIODS:
            if beat * SECOND_MS % period.every_ms == 0:
                await take_all(figures.take_samples(period, now_ms()))
                if period is DAY:
                    await take_all(figures.forget_idle())
        if beat and beat % MINUTE_SECONDS == 0:
            figures.store.turn_minute()
        if (day := _day(now_ms())) != today:
            today = day
            figures.turn_day()
        beat += 1
        began = max(
            began, trio.current_time() - beat
        )  # after a halt of the process, beats that were missed are left out
        await trio.sleep_until(began + beat)


def _day(now_ms: int) -> date:
    """Returns the day here, at midnight of which totals are noted."""
    return datetime.fromtimestamp(now_ms / SECOND_MS).astimezone().date()
