"""A broker that is killed while it removes old messages: what it still keeps is what was acknowledged."""

import signal
from pathlib import Path

import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.offsets import GetMinOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from tests.servers.broker.serving import message
from tests.support.stranger import ServerProcess, broker_process

KILLS = 2
SEGMENT = 16_384
# The store keeps to seven segments, of which a loaded machine makes some ahead; queue files go soon after them.
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 400,
    "maxStoreBytes": 8 * SEGMENT,
    "flushIntervalConsumeQueue": 20,
    "deleteConsumeQueueFilesInterval": 1,
    "cleanResourceInterval": 20,
}


async def least(pool: ConnectionPool, address: str) -> int:
    answer = await pool.call(address, GetMinOffset("T", 0).to_command(), timeout=30)
    return OffsetFound.from_command(answer).offset


async def kept(pool: ConnectionPool, address: str) -> dict[int, bytes]:
    """Returns the bodies from the minimum offset on, which may still move; pulls below it are answered 21."""
    offset = 0
    bodies: dict[int, bytes] = {}
    while True:
        pull = PullMessage("G", "T", 0, offset, 32, int(PullSysFlag.SUBSCRIPTION))
        answer = PullAnswer.from_command(await pool.call(address, pull.to_command(), timeout=30))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            assert offset < answer.next_begin_offset == answer.min_offset
            bodies = {}
        elif answer.code != 0:
            assert offset == answer.max_offset
            return bodies
        records = list(iterate_records(answer.records, check_crc=True))
        if records:
            assert [record.queue_offset for record in records] == list(range(offset, answer.next_begin_offset))
            bodies |= {record.queue_offset: record.body for record in records}
        offset = answer.next_begin_offset


async def send_until_killed(broker: ServerProcess, pool: ConnectionPool, acknowledged: dict[int, bytes]) -> None:
    """Sends from some tasks; kills the broker when it has removed messages."""

    async def send(sender: int) -> None:
        try:
            for number in range(100_000):
                body = b"%d-%d " % (sender, number) * 60
                answer = await pool.call(broker.address, message("T", body).to_command(), timeout=30)
                assert answer.code == 0, answer.remark
                acknowledged[MessageStored.from_command(answer).queue_offset] = body
        except NetworkError:
            pass

    begun = await least(pool, broker.address)
    async with trio.open_nursery() as senders:
        for sender in range(4):
            senders.start_soon(send, sender)
        with trio.fail_after(60):
            while await least(pool, broker.address) < begun + 100:  # noqa: ASYNC110 - another process has no event
                await trio.sleep(0.02)
        broker.stop(signal.SIGKILL)


async def test_a_kill_while_messages_are_removed_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, bytes] = {}
    for number in range(KILLS + 1):
        with broker_process(tmp_path, **SETTINGS) as broker:
            async with trio.open_nursery() as nursery:
                pool = ConnectionPool(nursery)
                if number:
                    bodies = await kept(pool, broker.address)
                    expected = {offset: body for offset, body in acknowledged.items() if offset >= min(bodies)}
                    assert len(expected) > 50
                    assert expected.items() <= bodies.items()
                    assert min(bodies) > 0
                if number < KILLS:
                    await send_until_killed(broker, pool, acknowledged)
                await pool.aclose()
