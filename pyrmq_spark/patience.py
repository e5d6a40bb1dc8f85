"""Waits up to `pullTimeoutMs` for brokers and NameServers that do not answer, then raises; nothing is skipped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from pyrmq_core import PASSING_CODES, BrokerNotFound, NetworkError, NoRoute, ResponseError, RocketMQError, RoutingError
from pyrmq_spark.spark_errors import BrokerUnavailable

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.2

T = TypeVar("T")


def retry_until_timeout(ask: Callable[[bool], T], seconds: float, passes: Callable[[RocketMQError], bool]) -> T:
    """Returns the result of `ask(False)`; calls `ask(True)` again while it raises errors that `passes` accepts.

    Raises `BrokerUnavailable` after `seconds`, and any other error at once.
    """
    deadline, again = time.monotonic() + seconds, False
    while True:
        try:
            return ask(again)
        except (NetworkError, RoutingError, ResponseError) as error:
            if not passes(error):
                raise
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(
                    f"waited {seconds:g} s in vain, and nothing was skipped: {error}; start it again when the brokers "
                    "are back, or let it wait longer with pullTimeoutMs"
                ) from error
            if not again:
                log.warning("waiting up to %g s: %s", seconds, error)
        again = True
        time.sleep(PAUSE_SECONDS)


def of_a_stream(error: RocketMQError) -> bool:
    """Returns whether a stream may succeed later after this error."""
    if isinstance(error, ResponseError):
        return error.code in PASSING_CODES
    return not isinstance(error, NoRoute)


def of_a_batch(error: RocketMQError) -> bool:
    """Returns whether a batch should wait after this error, which is that a known broker of the topic is missing."""
    return isinstance(error, BrokerNotFound)
