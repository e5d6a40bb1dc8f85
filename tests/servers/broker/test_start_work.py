"""A start does not read or write what it need not: counted in reads and writes of files in memory."""

from pathlib import Path
from typing import cast

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.control import access_control
from pyrmq_core.servers.broker.server import Entrance
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.timers.timer_rules import TimerSettings
from pyrmq_core.servers.broker.timers.timer_store import TimerStore
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent, contents, opened, put

MESSAGES = 500
SETTINGS = StoreSettings(segment_bytes=1 << 20, queue_file_bytes=20_000)


def killed_with_messages() -> MemoryFiles:
    """Returns the files of a store that was killed before any checkpoint of its messages, with a timer checkpoint."""
    files = MemoryFiles()
    store = opened(files, SETTINGS)
    timers = TimerStore(store, files, TimerSettings())
    timers.open(NOW_MS)
    timers.files.save(timers.state(NOW_MS))
    for number in range(MESSAGES):
        put(store, Sent("T", number % 2, (b"%d" % number,)))
    store.abandon()
    return files


def test_recovery_writes_the_entries_of_a_queue_together() -> None:
    files = killed_with_messages()
    files.writes.clear()
    store = opened(files, SETTINGS)
    assert [len(bodies) for bodies in contents(store, [("T", 0), ("T", 1)]).values()] == [250, 250]
    assert sum([path.startswith("consumequeue/") for path in files.writes]) <= 4


def test_timers_that_never_had_a_message_do_not_read_the_log() -> None:
    files = killed_with_messages()
    store = opened(files, SETTINGS)
    files.read_bytes = 0
    TimerStore(store, files, TimerSettings()).open(NOW_MS)
    assert files.read_bytes < store.end // 10


async def test_a_request_that_comes_before_the_broker_is_whole_is_refused_by_name() -> None:
    config = BrokerConfig()
    access = await access_control(config.access, cluster="c", folder=Path("none"), max_body_bytes=1)
    answer = Entrance(access).answer(Command(RequestCode.GET_BROKER_RUNTIME_INFO), cast(Peer, None))
    assert isinstance(answer, Command)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is starting")
