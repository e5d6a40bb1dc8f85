"""Waits for brokers and NameServers that do not answer: `pullTimeoutMs`, then a named error, and nothing is skipped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from pyrmq_core import BrokerNotFound, NetworkError, NoRoute, ResponseError, RocketMQError, RoutingError
from pyrmq_spark.spark_errors import BrokerUnavailable

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.2
# A broker that is starting, ending or busy: SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, GO_AWAY.
PASSING_CODES: Final = (2, 14, 1500)

T = TypeVar("T")


def retry_until_timeout(ask: Callable[[bool], T], seconds: float, passes: Callable[[RocketMQError], bool]) -> T:
    """What `ask` gives; called again, with True, while its errors are such that pass."""
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
    """Whether the same question may be answered later."""
    if isinstance(error, ResponseError):
        return error.code in PASSING_CODES
    return not isinstance(error, NoRoute)


def of_a_batch(error: RocketMQError) -> bool:
    """Whether a broker is away that the topic is known to be on; what cannot be reached fails a batch at once."""
    return isinstance(error, BrokerNotFound)
