"""Requests that slaves of 5.x alone send: timers (60, 61) and the groups whose queues the broker assigns (402).

Source: broker/processor/AdminBrokerProcessor.java, QueryAssignmentProcessor.java (5.4.0). Timer messages are not
counted by topic here, and every group pulls: two of the answers are empty tables.
"""

from __future__ import annotations

from pyrmq_core.broker.broker import Broker
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.routes.topic_config import NO_VERSION


def timer_checkpoint(broker: Broker, _request: Command, _: Peer) -> Command:
    """Returns the last checkpoint of timers that was written.

    A later state could name deliveries that the log lost in a power cut.
    """
    if not broker.timers.enabled:
        return refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null; timerWheelEnable is false")
    return success(body=broker.timers.messages.files.saved.encode_fields())


def timer_metrics(broker: Broker, _request: Command, _: Peer) -> Command:
    if not broker.timers.enabled:
        return refusal(ResponseCode.SYSTEM_ERROR, "The timerMessageStore is null; timerWheelEnable is false")
    return success(body=dumps({"dataVersion": NO_VERSION.to_members(), "timingCount": {}}))


def message_request_modes(_broker: Broker, _request: Command, _: Peer) -> Command:
    return success(body=dumps({"messageRequestModeMap": {}}))
