"""Committed offsets of a consumer group: QUERY_CONSUMER_OFFSET (14) and UPDATE_CONSUMER_OFFSET (15).

The answer to request 14 is `offsets.OffsetFound`. If nothing is committed, the response code is QUERY_NOT_FOUND (4.9:
offset 0). The answer to request 15 has no fields. 5.x refuses an unknown group or topic. The field `fromSlave` does not
exist in RocketMQ. Sources: remoting/protocol/header/QueryConsumerOffsetRequestHeader.java,
UpdateConsumerOffsetRequestHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest

# The remark in a SUCCESS answer of a broker that ignored the commit, since an administrator had reset the offset
# (broker/processor/ConsumerManageProcessor.java, 5.4.0).
PREVIOUSLY_RESET: Final = "Offset has been previously reset"


@dataclass(frozen=True, slots=True)
class QueryConsumerOffset(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    set_zero_if_not_found: bool | None = wire("setZeroIfNotFound", None)
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class UpdateConsumerOffset(HeaderRequest):
    """A request to commit an offset: the group continues with the message at `commit_offset` of the queue.

    With `from_slave` the offset was committed at a slave while its master was not reachable. The master ignores it if
    an administrator has reset the group's offset at the master.
    """

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: int = wire_int("queueId")
    commit_offset: int = wire("commitOffset")
    broker_name: str | None = wire("bname", None)
    from_slave: bool | None = wire("fromSlave", None)
