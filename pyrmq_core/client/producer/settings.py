"""The settings of one send, and the mode that decides what may be retried.

Names and defaults of client/producer/DefaultMQProducer.java and client/impl/CommunicationMode.java.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.client.arguments import seconds_of, whole_number
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.shown_values import shown


class CommunicationMode(enum.Enum):
    """A send's mode, which decides what may be retried."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


# A member of an enum costs more than a call to look up.
SYNC: Final = CommunicationMode.SYNC
ASYNC: Final = CommunicationMode.ASYNC


@dataclass(frozen=True, kw_only=True)
class SendSettings:
    """The settings that one send depends on; RocketMQ's names and defaults, seconds for times."""

    group: str = field(kw_only=False)
    namespace: str | None = None
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    timeout_per_attempt: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = 4
    start_detector_enable: bool = False

    def __post_init__(self) -> None:
        whole_number("retry_times_when_send_failed", self.retry_times_when_send_failed, 0)
        whole_number("retry_times_when_send_async_failed", self.retry_times_when_send_async_failed, 0)
        whole_number("default_topic_queue_nums", self.default_topic_queue_nums, 1)
        if self.timeout_per_attempt is not None:
            seconds_of("timeout_per_attempt", self.timeout_per_attempt)
        check_topic(self.create_topic_key)

    @property
    def producer_group(self) -> str:
        """The group as brokers know it, with the namespace in front."""
        return with_namespace(self.group, self.namespace)

    def tries_allowed(self, mode: CommunicationMode) -> int:
        """Returns the number of tries, with the first one."""
        if mode is SYNC:
            return 1 + self.retry_times_when_send_failed
        return 1 + self.retry_times_when_send_async_failed if mode is ASYNC else 1


def compression_type(name: str) -> CompressionType | None:
    """Returns the compression of a name in lower case, None for `none`.

    Raises `InvalidArgument` for an unknown name, and `MissingLibrary` when its library is not installed.
    """
    known = {kind.name.lower(): kind for kind in CompressionType}
    if name != "none" and name not in known:
        raise InvalidArgument(f"compression={shown(name)}: none, {', '.join(sorted(known))} are possible")
    kind = known.get(name)
    if kind is not None:
        kind.check_library()
    return kind
