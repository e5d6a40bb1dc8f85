"""The broker's figures: all of them (28), one by its name and key (315), and the state of replication (907).

Source: broker/processor/AdminBrokerProcessor.java prepareRuntimeInfo, ViewBrokerStatsData (5.4.0).
"""

from __future__ import annotations

import math
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import VERSION, Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.tallies import DAY, HOUR, MINUTE, Tally
from pyrmq_core.servers.broker.store.disk.files import DiskSpace
from pyrmq_core.servers.broker.store.layout import QUEUES_FOLDER

VERSION_NAME: Final = "V5_3_3"
UNITS: Final = "KMGTPE"
# The members of a slave's state that only a master has.
NO_SLAVES: Final = {"haConnectionInfo": [], "inSyncSlaveNums": 0, "master": False, "masterCommitLogMaxOffset": 0}
# Of the queues of Java's threads, by BrokerConfig.java's defaults: exporters parse them without a check.
QUEUE_CAPACITIES: Final = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


async def runtime_info(broker: Broker, _request: Command, _: Peer) -> Command:
    """Returns the broker's figures, all as text. Queues of Java's threads are empty: requests run in one loop."""
    spaces = await trio.to_thread.run_sync(_spaces, broker)
    table = {**broker.figures.store.figures(), **broker.figures.totals(), **_state(broker), **_disk(broker, spaces)}
    table |= {
        f"scheduleMessageOffset_{level}": f"{delivered},{end}" for level, delivered, end in broker.delays.progress()
    }
    return success(body=dumps({"table": {name: str(value) for name, value in sorted(table.items())}}))


def ha_status(broker: Broker, _request: Command, _: Peer) -> Command:
    """Returns the state of replication: the slaves that follow this master, or how this slave follows its master."""
    if broker.config.is_slave:
        return success(body=dumps({**NO_SLAVES, "haClientRuntimeInfo": _following(broker)}))
    end, replicas = broker.store.end, broker.ha.replicas
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


def _following(broker: Broker) -> dict[str, object]:
    """Returns the state of a slave's connection with its master; a time of 0 means that there is none.

    A slave never has its master's flushed offset, which is 0 in 5.4.0, too.
    """
    client, now = broker.ha_client, trio.current_time()
    members: dict[str, object] = {
        "masterAddr": broker.registration.master_ha_address,
        "maxOffset": broker.store.end,
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
            "lastReadTimestamp": broker.now_ms() - round((now - client.read_at) * 1000),
            "lastWriteTimestamp": broker.now_ms() - round((now - client.reported_at) * 1000),
        }
    return members


def stats_data(figures: BrokerFigures, request: Command) -> Command:
    """Returns one figure of the last minute, hour and day."""
    name, key = request.ext.get("statsName", ""), request.ext.get("statsKey", "")
    figure = figures.find(name, key)
    if figure is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name[:255]}> <{key[:255]}> not exist")
    return success(body=dumps(_periods(*figure)))


def _periods(tally: Tally, counter: str) -> dict[str, dict[str, float]]:
    periods = {"statsDay": DAY, "statsHour": HOUR, "statsMinute": MINUTE}
    return {name: tally.figure(period, counter)._asdict() for name, period in periods.items()}


def _state(broker: Broker) -> dict[str, object]:
    store, now_ms = broker.store, broker.now_ms()
    table: dict[str, object] = {
        "bootTimestamp": broker.booted_ms,
        "brokerActive": "false" if broker.config.is_slave else "true",
        "brokerVersion": VERSION,
        "brokerVersionDesc": VERSION_NAME,
        "commitLogMaxOffset": store.end,
        "commitLogMinOffset": store.start,
        "dispatchBehindBytes": store.end - store.readable_end if broker.config.is_slave else 0,
        "earliestMessageTimeStamp": store.reader.earliest_ms(),
        # The tools of 4.9 need the member in this spelling.
        "getTransferedTps": broker.figures.store.figures()["getTransferredTps"],
        "pageCacheLockTimeMills": 0,
        "remainHowManyDataToFlush": readable_size(store.end - store.flushed),
        "remainTransientStoreBufferNumbs": 2**31 - 1,
        "runtime": readable_time((now_ms - broker.booted_ms) // 1000),
        "startAcceptSendRequestTimeStamp": 0,
        "timerCongestNum": broker.timers.messages.files.waiting,
        "timerDequeueTps": broker.figures.store.lately(lambda totals: totals.timers_out),
        "timerEnqueueTps": broker.figures.store.lately(lambda totals: totals.timers_in),
        "timerOffsetBehind": broker.timers.messages.unread,
        "timerReadBehind": broker.timers.messages.late_ms(now_ms) // 1000,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 100_000,
    }
    for name, capacity in QUEUE_CAPACITIES.items():
        table[f"{name}ThreadPoolQueueCapacity"] = capacity
        table[f"{name}ThreadPoolQueueSize"] = 0
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
    table["pullThreadPoolQueueSize"] = broker.held.count
    return table


def _spaces(broker: Broker) -> list[DiskSpace]:
    files = broker.store.files
    try:
        return [files.space(folder) for folder in (broker.store.settings.log_folder.rstrip("/"), QUEUES_FOLDER)]
    except StoreError:
        return []


def _disk(broker: Broker, spaces: list[DiskSpace]) -> dict[str, object]:
    if not spaces:
        return {}
    log, queues = spaces
    total, free = readable_size(log.total), readable_size(log.free)
    return {
        "commitLogDirCapacity": f"Total : {total}, Free : {free}.",
        "commitLogDiskRatio": log.used_percent / 100,
        "consumeQueueDiskRatio": queues.used_percent / 100,
    }


def readable_size(size_bytes: int) -> str:
    """Returns a size as RocketMQ's tools print it: `512 B`, `1.5 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = int(math.log(size_bytes) / math.log(1024))
    return f"{size_bytes / 1024**power:.1f} {UNITS[power - 1]}iB"


def readable_time(seconds: int) -> str:
    """Returns `[ 0 days, 1 hours, 2 minutes, 3 seconds ]`."""
    parts = []
    for name, length in SECONDS.items():
        parts.append(f"{seconds // length} {name}")
        seconds %= length
    return f"[ {', '.join(parts)} ]"
