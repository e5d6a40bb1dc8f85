"""Requests for the broker's statistics: all of them (28), one by its name and key (315), and the replication (907).

Source: broker/processor/AdminBrokerProcessor.java prepareRuntimeInfo, ViewBrokerStatsData (5.4.0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import VERSION, Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.replicas import Replicas
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.tallies import DAY, HOUR, MINUTE, Tally
from pyrmq_core.servers.broker.store.disk.files import DiskSpace
from pyrmq_core.servers.broker.store.layout import QUEUES_FOLDER
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.service import Timers

VERSION_NAME: Final = "V5_3_3"
UNITS: Final = "KMGTPE"
# The members that only a master can fill, in a slave's answer to request 907.
NO_SLAVES: Final = {"haConnectionInfo": [], "inSyncSlaveNums": 0, "master": False, "masterCommitLogMaxOffset": 0}
# The capacities of the queues of Java's thread pools (BrokerConfig.java). Exporters of metrics need them in the answer.
QUEUE_CAPACITIES: Final = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True, slots=True)
class FigureRequests:
    settings: LiveSettings
    identity: Identity
    store: MessageStore
    figures: BrokerFigures
    delays: DelayLevels
    timers: Timers
    held: HeldPulls
    registration: BrokerRegistration
    replicas: Replicas
    ha_client: HaClient | None

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
        }

    async def runtime_info(self, _request: Command, _: Peer) -> Command:
        """Returns the broker's statistics as texts.

        The sizes of Java's thread pool queues are 0, but that of the pull queue is the number of held pulls.
        """
        spaces = await trio.to_thread.run_sync(self._spaces)
        table = {**self.figures.store.figures(), **self.figures.totals(), **self._state(), **self._disk(spaces)}
        table |= {
            f"scheduleMessageOffset_{level}": f"{delivered},{end}" for level, delivered, end in self.delays.progress()
        }
        return success(body=dumps({"table": {name: str(value) for name, value in sorted(table.items())}}))

    def ha_status(self, _request: Command, _: Peer) -> Command:
        """Returns the state of replication: a master's slaves, or a slave's connection to its master."""
        if self.settings.config.is_slave:
            return success(body=dumps({**NO_SLAVES, "haClientRuntimeInfo": self._following()}))
        end, replicas = self.store.end, self.replicas
        in_sync = replicas.in_sync(end)
        members = {
            "haConnectionInfo": [
                {
                    "addr": slave.address,
                    "slaveAckOffset": slave.acknowledged,
                    "diff": end - slave.acknowledged,
                    "inSync": slave in in_sync,
                    "transferredByteInSecond": slave.bytes_per_second(),
                    "transferFromWhere": slave.sent,
                }
                for slave in replicas.connected
            ],
            "inSyncSlaveNums": len(in_sync),
            "master": True,
            "masterCommitLogMaxOffset": end,
        }
        return success(body=dumps(members))

    def _following(self) -> dict[str, object]:
        client, now = self.ha_client, trio.current_time()
        members: dict[str, object] = {
            "masterAddr": self.registration.master_ha_address,
            "maxOffset": self.store.end,
            "masterFlushOffset": 0,
            "transferredByteInSecond": 0,
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
        }
        if client is not None and client.master is not None:
            seconds = max(1.0, now - client.began)
            members |= {
                "masterAddr": client.master,
                "transferredByteInSecond": int(client.taken / seconds),
                "lastReadTimestamp": clock.now_ms() - round((now - client.read_at) * 1000),
                "lastWriteTimestamp": clock.now_ms() - round((now - client.reported_at) * 1000),
            }
        return members

    def stats_data(self, request: Command, _: Peer) -> Command:
        """Returns a counter's growth in the last minute, hour and day. Refuses an unknown `statsName` or `statsKey`."""
        name, key = request.ext.get("statsName", ""), request.ext.get("statsKey", "")
        figure = self.figures.find(name, key)
        if figure is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name[:255]}> <{key[:255]}> not exist")
        return success(body=dumps(_periods(*figure)))

    def _state(self) -> dict[str, object]:
        store, now_ms = self.store, clock.now_ms()
        table: dict[str, object] = {
            "bootTimestamp": self.identity.booted_ms,
            "brokerActive": "false" if self.settings.config.is_slave else "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": VERSION_NAME,
            "commitLogMaxOffset": store.end,
            "commitLogMinOffset": store.start,
            "dispatchBehindBytes": store.end - store.readable_end if self.settings.config.is_slave else 0,
            "earliestMessageTimeStamp": store.reader.earliest_ms(),
            # The tools of 4.9 need this spelling.
            "getTransferedTps": self.figures.store.figures()["getTransferredTps"],
            "pageCacheLockTimeMills": 0,
            "remainHowManyDataToFlush": readable_size(store.end - store.flushed),
            "remainTransientStoreBufferNumbs": 2**31 - 1,
            "runtime": readable_time((now_ms - self.identity.booted_ms) // 1000),
            "startAcceptSendRequestTimeStamp": 0,
            "timerCongestNum": self.timers.messages.files.waiting,
            "timerDequeueTps": self.figures.store.lately(lambda totals: totals.timers_out),
            "timerEnqueueTps": self.figures.store.lately(lambda totals: totals.timers_in),
            "timerOffsetBehind": self.timers.messages.unread,
            "timerReadBehind": self.timers.messages.late_ms(now_ms) // 1000,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 100_000,
        }
        for name, capacity in QUEUE_CAPACITIES.items():
            table[f"{name}ThreadPoolQueueCapacity"] = capacity
            table[f"{name}ThreadPoolQueueSize"] = 0
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        table["pullThreadPoolQueueSize"] = self.held.count
        return table

    def _spaces(self) -> list[DiskSpace]:
        files = self.store.files
        try:
            return [files.space(folder) for folder in (self.store.settings.log_folder.rstrip("/"), QUEUES_FOLDER)]
        except StoreError:
            return []

    def _disk(self, spaces: list[DiskSpace]) -> dict[str, object]:
        if not spaces:
            return {}
        log, queues = spaces
        total, free = readable_size(log.total), readable_size(log.free)
        return {
            "commitLogDirCapacity": f"Total : {total}, Free : {free}.",
            "commitLogDiskRatio": log.used_percent / 100,
            "consumeQueueDiskRatio": queues.used_percent / 100,
        }


def _periods(tally: Tally, counter: str) -> dict[str, dict[str, float]]:
    periods = {"statsDay": DAY, "statsHour": HOUR, "statsMinute": MINUTE}
    return {name: tally.figure(period, counter)._asdict() for name, period in periods.items()}


def readable_size(size_bytes: int) -> str:
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = int(math.log(size_bytes) / math.log(1024))
    return f"{size_bytes / 1024**power:.1f} {UNITS[power - 1]}iB"


def readable_time(seconds: int) -> str:
    """Formats a duration, as `[ 0 days, 1 hours, 2 minutes, 3 seconds ]`."""
    parts = []
    for name, length in SECONDS.items():
        parts.append(f"{seconds // length} {name}")
        seconds %= length
    return f"[ {', '.join(parts)} ]"
