"""Requests that master, slave and NameServer send to each other.

A slave fetches committed offsets (43), offsets of delay levels (45), the state of timers (60, 61) and the request modes
of groups (402). A NameServer reports that the smallest id among brokers of one name has changed (905). Master and slave
exchange the master's addresses (906). The answer to 61 is an empty table. RocketMQ trusts any sender of 905 and 906.
Here 905 only causes a query to the NameServer, and a slave accepts 906 only while it acts for its master. Source:
broker/processor/AdminBrokerProcessor.java, QueryAssignmentProcessor.java (5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.fields import encode_fields
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.messages.names import check_address
from pyrmq_core.protocol.routes.topic_config import NO_VERSION
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, object_pieces
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.config_files import encode_config
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.request_modes import RequestModes
from pyrmq_core.servers.broker.timers import timer_checkpoint as timer_checkpoint_file
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.protocol.master_info import MasterInfo


@dataclass(frozen=True, slots=True)
class SlaveRequests:
    """The handlers of requests between master, slave and NameServer, such as a slave's for its master's offsets."""

    settings: LiveSettings
    identity: Identity
    store: MessageStore
    offsets: GroupOffsets
    modes: RequestModes
    delays: DelayLevels
    timers: Timers
    registration: BrokerRegistration
    acting: ActingMaster | None
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.message_request_modes,
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.min_broker_id_changed,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_ha_info,
        }

    def consumer_offsets(self, _request: Command, _: Peer) -> Answer:
        return answer_in_turns(self.long_work, object_pieces(self.offsets.members()))

    def delay_offsets(self, _request: Command, _: Peer) -> Command:
        """Returns the content of `delayOffset.json`, the next offset of each delay level, for a slave to adopt."""
        return success(body=encode_config(self.delays.members()))

    def timer_checkpoint(
        self,
        _request: Command,
        _: Peer,
    ) -> Command:
        """Returns the checkpoint of timers on disk. A slave returns its copy of the master's checkpoint, or zeros.

        A checkpoint that is not yet on disk could refer to deliveries that the log loses in a power cut.
        """
        if self.settings.config.is_slave:
            kept = TimerCheckpoint.decode(self.store.files.load(timer_checkpoint_file.PATH))
            return success(body=(kept or TimerCheckpoint()).encode_fields())
        if not self.timers.enabled:
            return refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null; timerWheelEnable is false")
        return success(body=self.timers.messages.files.saved.encode_fields())

    def timer_metrics(self, _request: Command, _: Peer) -> Command:
        if not self.timers.enabled:
            return refusal(ResponseCode.SYSTEM_ERROR, "The timerMessageStore is null; timerWheelEnable is false")
        return success(body=dumps({"dataVersion": NO_VERSION.to_members(), "timingCount": {}}))

    def message_request_modes(self, _request: Command, _: Peer) -> Command:
        return success(body=dumps(self.modes.members()))

    def min_broker_id_changed(self, _request: Command, _: Peer) -> Command:
        if self.acting is not None:
            self.acting.look_soon()
        return success()

    def exchange_ha_info(self, request: Command, _: Peer) -> Command:
        """Returns a master's addresses if the request has none. A slave that acts as master saves the request's."""
        info = MasterInfo.from_command(request)
        if not self.settings.config.is_slave:
            own = MasterInfo(self.registration.ha_address, self.store.end, self.identity.address)
            return success() if info.ha_address else success(encode_fields(own))
        if info.ha_address and info.address and self.acting is not None and self.acting.is_acting:
            for address in (info.ha_address, info.address):
                check_address(address)
            self.registration.note_master(info.address, info.ha_address)
        return success()
