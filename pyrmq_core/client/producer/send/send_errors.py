"""Errors of sends that end by neither a broker's answer nor a failure of the wire."""

from __future__ import annotations

import logging

from pyrmq_core.errors import Outcome, SendFailed

log = logging.getLogger(__name__)


def given_up(topic: str) -> SendFailed:
    """Returns the end of a send whose caller does not wait any more."""
    return SendFailed(
        f"the producer was closed while a message for {topic} was under way; sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )


def unexpected(topic: str, error: Exception) -> SendFailed:
    """Returns the end of a send that met what no send should raise; it is logged with its place."""
    log.error("a send to %s met an unexpected %s", topic, type(error).__name__, exc_info=error)
    failed = SendFailed(
        f"topic {topic}: the send ended with an unexpected {type(error).__name__}: {error}; it is perhaps stored, and "
        "sending it again may store a second copy",
        outcome=Outcome.PERHAPS_STORED,
        attempts=(),
    )
    failed.__cause__ = error
    return failed
