"""What a failure is called in an answer, in an error and in the log, and why a connection ends for it."""

from __future__ import annotations

from typing import Final

from pyrmq_core.errors import ProtocolError
from pyrmq_core.network.connection.wire import WIRE_ERRORS
from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)

# A failure's text may quote what came; more of it is no use to its reader.
MAX_FAILURE_CHARS: Final = 4000


def reason_to_close(error: Exception, address: str, level: int) -> str:
    """Why the connection with this address ends, by what was raised; logged, but for a wire that broke.

    What the other end does wrong is logged at `level`, what fails in this program as an error.
    """
    if isinstance(error, WIRE_ERRORS):
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, ProtocolError):
        fault = f"sent what is not RocketMQ's: {error}"
        log.log(level, "closing the connection with %s, which %s", address, fault)
        return f"the other end {fault}"
    failure = describe(error)
    log.error("closing the connection with %s, which cannot go on: %s", address, failure)
    log.debug("where it failed", exc_info=error)
    return f"it could not go on: {failure}"


def describe(error: BaseException) -> str:
    """The kind and text of an error, of bounded length; also of one whose text cannot be made."""
    try:
        text = str(error)[:MAX_FAILURE_CHARS]
    except Exception:
        text = "it has no text"
    return f"{type(error).__name__}, {text}"
