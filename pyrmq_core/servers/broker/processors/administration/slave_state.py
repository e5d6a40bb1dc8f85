"""Requests between master, slave and NameServer of 5.x: timers (60, 61), groups whose queues the broker assigns (402),
a new smallest id (905), and the addresses of a master (906).

Source: broker/processor/AdminBrokerProcessor.java, QueryAssignmentProcessor.java (5.4.0). Timer messages are not
counted by topic here, and every group pulls: two of the answers are empty tables. RocketMQ trusts any peer's 905 and
906: here a notice 905 causes a query to the NameServer, and a request 906 counts at a slave only while no master is
there.
"""

from __future__ import annotations

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import encode_fields
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.messages.names import check_address
from pyrmq_core.protocol.routes.topic_config import NO_VERSION
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers import timer_checkpoint as timer_checkpoint_file
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.protocol.master_info import MasterInfo


def timer_checkpoint(config: BrokerConfig, store: MessageStore, timers: Timers) -> Command:
    """Returns the last written checkpoint of timers; on a slave, the copy of its master's checkpoint, or zeros.

    A later state could name deliveries that the log lost in a power cut. A returning master of RocketMQ queries its
    slave, adopts a later version than its own, and does not register without an answer.
    """
    if config.is_slave:
        kept = TimerCheckpoint.decode(store.files.load(timer_checkpoint_file.PATH))
        return success(body=(kept or TimerCheckpoint()).encode_fields())
    if not timers.enabled:
        return refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null; timerWheelEnable is false")
    return success(body=timers.messages.files.saved.encode_fields())


def timer_metrics(timers: Timers) -> Command:
    if not timers.enabled:
        return refusal(ResponseCode.SYSTEM_ERROR, "The timerMessageStore is null; timerWheelEnable is false")
    return success(body=dumps({"dataVersion": NO_VERSION.to_members(), "timingCount": {}}))


def message_request_modes() -> Command:
    return success(body=dumps({"messageRequestModeMap": {}}))


def min_broker_id_changed(acting: ActingMaster | None) -> Command:
    if acting is not None:
        acting.look_soon()
    return success()


def exchange_ha_info(broker: Broker, request: Command, _: Peer) -> Command:
    """Returns this master's addresses; an acting slave notes the master's addresses from the request."""
    info = MasterInfo.from_command(request)
    if not broker.config.is_slave:
        own = MasterInfo(broker.registration.ha_address, broker.store.end, broker.address)
        return success() if info.ha_address else success(encode_fields(own))
    if info.ha_address and info.address and broker.is_acting:
        for address in (info.ha_address, info.address):
            check_address(address)
        broker.registration.note_master(info.address, info.ha_address)
    return success()
