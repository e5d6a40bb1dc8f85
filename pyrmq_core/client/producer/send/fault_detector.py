"""The detector: asks brokers that failed whether they answer again, so that fault latency may choose them.

Source: client/latency/LatencyFaultToleranceImpl.java (detectByOneRound), client/impl/factory/MQClientInstance.java.
"""

from __future__ import annotations

from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.fault_latency import FaultLatency
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset

EVERY_SECONDS: Final = 3.0
PROBE_TIMEOUT_SECONDS: Final = 0.2


async def run_detector(client: ClientSession, faults: FaultLatency) -> None:
    """Probes due brokers every 3 s, for the life of a producer."""
    while True:
        await trio.sleep(EVERY_SECONDS)
        async with trio.open_nursery() as nursery:
            for broker_name in faults.due(trio.current_time()):
                nursery.start_soon(_probe, client, faults, broker_name)


async def _probe(client: ClientSession, faults: FaultLatency, broker_name: str) -> None:
    """Probes one broker with a cheap request; removes a broker without a known master."""
    topic = next(iter(client.routes.topics), None)
    try:
        master = client.routes.broker(broker_name).master
    except RocketMQError:
        master = None
    if master is None or topic is None:
        faults.remove(broker_name)
        return
    try:
        question = GetMaxOffset(topic, 0, broker_name=broker_name)
        answer = await client.call(master, question.to_command(), timeout=PROBE_TIMEOUT_SECONDS)
    except RocketMQError:
        return
    if answer.code == ResponseCode.SUCCESS:
        faults.reached(broker_name)
