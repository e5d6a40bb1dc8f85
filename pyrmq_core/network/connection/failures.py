"""The texts of failures for answers, errors and the log, and the reasons for which connections end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyrmq_core.errors import ProtocolError
from pyrmq_core.network.connection.wire import WIRE_ERRORS
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.tls_reasons import tls_reason

log = line_logger(__name__)

# The most characters of a failure's text, which may quote received bytes.
MAX_FAILURE_CHARS: Final = 4000


def reason_to_close(error: Exception, address: str, level: int) -> str:
    """Returns the reason why `error` ends the connection with this address, and logs it.

    Faults of the other end are logged at `level`, failures of this program as errors, failures of the network not at
    all.
    """
    if isinstance(error, WIRE_ERRORS):
        return tls_reason(error) or getattr(error, "strerror", None) or str(error) or _cause(error)
    if isinstance(error, ProtocolError):
        fault = f"sent what is not RocketMQ's: {error}"
        log.log(level, "closing the connection with %s, which %s", address, fault)
        return f"the other end {fault}"
    failure = describe(error)
    log.error("closing the connection with %s, which cannot go on: %s", address, failure)
    log.debug("where it failed", exc_info=error)
    return f"it could not go on: {failure}"


def _cause(error: Exception) -> str:
    return str(error.__cause__ or "") or "the connection broke"


def not_running(_: Callable[[], None]) -> None:
    """Raises `AssertionError`. It replaces the loop's `run_sync_soon` in a connection that does not run."""
    raise AssertionError("a connection that does not run")


def describe(error: BaseException) -> str:
    try:
        text = str(error)[:MAX_FAILURE_CHARS]
    except Exception:
        text = "it has no text"
    return f"{type(error).__name__}, {text}"
