"""Requests to a broker to remove queues without messages (306), unused topics (316) and old segments of the log (329).

The requests and their answers have no fields.
Source: broker/processor/AdminBrokerProcessor.java, 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class CleanExpiredConsumeQueue(HeaderRequest):
    """A request to remove the files of queues whose messages are no longer in the commit log."""

    CODE: ClassVar[RequestCode] = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@dataclass(frozen=True, slots=True)
class CleanUnusedTopic(HeaderRequest):
    """A request to remove the queues of topics that are not in the broker's topic configuration."""

    CODE: ClassVar[RequestCode] = RequestCode.CLEAN_UNUSED_TOPIC


@dataclass(frozen=True, slots=True)
class DeleteExpiredCommitLog(HeaderRequest):
    """A request to remove expired segments of the commit log now, and not at the hour of `deleteWhen`."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_EXPIRED_COMMITLOG
