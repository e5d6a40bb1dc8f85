"""Waits for brokers and NameServers that do not answer: `pullTimeoutMs`, then a named error; nothing is skipped."""

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
    """Returns the result of `ask`; calls it again, with True, while it raises errors that `passes` accepts.

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
    """Returns whether a later attempt of a stream may succeed."""
    if isinstance(error, ResponseError):
        return error.code in PASSING_CODES
    return not isinstance(error, NoRoute)


def of_a_batch(error: RocketMQError) -> bool:
    """Returns whether a known broker of the topic is missing; any other error fails a batch at once."""
    return isinstance(error, BrokerNotFound)
