"""Waits for brokers and NameServers that do not answer: `pullTimeoutMs` in a read, `sendTimeoutMs` in a write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pyrmq_core import (
    PASSING_CODES,
    BrokerNotFound,
    ManifestError,
    NetworkError,
    NoRoute,
    ResponseError,
    RocketMQError,
    RoutingError,
    line_logger,
)
from pyrmq_spark.spark_errors import BrokerUnavailable

log = line_logger(__name__)

PAUSE_SECONDS: Final = 0.2
READ_AGAIN: Final = (
    "nothing was skipped: start it again when the brokers are back, or let it wait longer with pullTimeoutMs"
)
WRITE_AGAIN: Final = "write again when the brokers are back, or let it wait longer with sendTimeoutMs"

T = TypeVar("T")


def retry_until_timeout(
    ask: Callable[[bool], T], seconds: float, passes: Callable[[RocketMQError], bool], remedy: str = READ_AGAIN
) -> T:
    """Returns the result of `ask`, which is called again after each error for which `passes` returns True.

    `ask` is called with False the first time, and with True in repetitions. Raises `BrokerUnavailable`, whose text ends
    with `remedy`, if such errors last longer than `seconds`. Raises any other error at once.
    """
    deadline, again = time.monotonic() + seconds, False
    while True:
        try:
            return ask(again)
        except (NetworkError, RoutingError, ResponseError) as error:
            if not passes(error):
                raise
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(f"waited {seconds:g} s in vain: {error}; {remedy}") from error
            if not again:
                log.warning("waiting up to %g s: %s", seconds, error)
        again = True
        time.sleep(PAUSE_SECONDS)


def wait_to_write(ask: Callable[[], T], seconds: float) -> T:
    return retry_until_timeout(lambda _: ask(), seconds, of_a_stream, WRITE_AGAIN)


def of_a_stream(error: RocketMQError) -> bool:
    """Returns whether a stream, or a write, may succeed later after this error."""
    if isinstance(error, ResponseError):
        return error.code in PASSING_CODES
    return not isinstance(error, NoRoute | ManifestError)


def of_a_batch(error: RocketMQError) -> bool:
    """Returns whether a batch should wait after this error, because it says that a known broker is not registered."""
    return isinstance(error, BrokerNotFound)
