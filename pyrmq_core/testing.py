"""Names for tests of programs that use RocketMQ: an embedded cluster, and the requests that a test may intercept.

`EmbeddedCluster.control` takes functions that answer, drop, delay or cut chosen requests.
"""

from __future__ import annotations

from pyrmq_core.embedded import PASS, Control, ControlFunction, CutConnection, EmbeddedCluster, Pass, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success

__all__ = [
    "PASS",
    "Command",
    "Control",
    "ControlFunction",
    "CutConnection",
    "EmbeddedCluster",
    "Pass",
    "Peer",
    "RequestCode",
    "ResponseCode",
    "TopicConfig",
    "refusal",
    "success",
]
