"""The requests of a Java producer and push consumer to a released 5.4.0 broker, repeated here, frame by frame."""

import contextlib
from pathlib import Path

import trio

from pyrmq_core.errors import ConnectionClosed
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from tests.servers.broker.serving import Served, serving, until
from tests.support import golden
from tests.support.golden import GoldenFrame

PULL = 11
# A pull that is held is left waiting after this, and its answer awaited later.
HELD_SECONDS = 0.2


def decoded(frame: GoldenFrame) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame.raw)
    command = decoder.next_command()
    assert command is not None
    return command


class Replay:
    """Sends recorded requests over as many connections as were recorded, and keeps the answers by their numbers."""

    def __init__(self, served: Served, nursery: trio.Nursery) -> None:
        self.address = served.running.address
        self.nursery = nursery
        self.pools = {number: ConnectionPool(nursery) for number in (1, 2)}
        self.answers: dict[tuple[int, int], Command] = {}

    async def ask(self, frame: GoldenFrame) -> None:
        request, pool = decoded(frame), self.pools[frame.conn]
        if frame.oneway:
            await pool.send_oneway(self.address, request, timeout=30)
            return
        done = trio.Event()
        self.nursery.start_soon(self._call, pool, frame.conn, request, done)
        with trio.move_on_after(HELD_SECONDS if frame.request == PULL else 30):
            await done.wait()

    async def answer(self, conn: int, opaque: int) -> Command:
        """Returns the answer to a request, which may still be on its way."""
        await until(lambda: (conn, opaque) in self.answers)
        return self.answers[conn, opaque]

    async def _call(self, pool: ConnectionPool, conn: int, request: Command, done: trio.Event) -> None:
        with contextlib.suppress(ConnectionClosed):  # the last pull is held until the consumer goes
            self.answers[conn, request.opaque] = await pool.call(self.address, request, timeout=30)
        done.set()


async def test_a_java_producer_and_consumer_get_what_they_got(tmp_path: Path) -> None:
    frames = [frame for frame in golden.frames() if frame.source == "5.4.0_client_broker"]
    compared: list[int] = []
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        replay = Replay(served, nursery)
        for frame in frames:
            if frame.dir == "c2s" and not frame.is_answer:
                await replay.ask(frame)
            elif frame.dir == "s2c" and frame.is_answer:
                recorded = decoded(frame)
                got = await replay.answer(frame.conn, recorded.opaque)
                assert (got.code, got.ext.keys(), got.is_response) == (recorded.code, recorded.ext.keys(), True), frame
                if frame.request != PULL:
                    assert got.body == recorded.body
                elif not any(code == PULL for code in compared):
                    assert stored(got.body) == stored(recorded.body)
                compared.append(frame.request)
        for pool in replay.pools.values():
            await pool.aclose()
        nursery.cancel_scope.cancel()
    assert {10, 34, 36, 38, 14, 35} - {10} <= set(compared)
    assert compared.count(PULL) == 2


def stored(body: bytes | memoryview) -> list[tuple[object, ...]]:
    """Returns the fields of records that depend neither on clock nor ports.

    The first pull came before the delayed message.
    """
    return [
        (
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.commit_log_offset,
            record.store_size,
            record.flag,
            record.sys_flag,
            record.born_timestamp_ms,
            record.reconsume_times,
            record.body,
            decode_properties(record.properties),
        )
        for record in iterate_records(body, check_crc=True)
    ]
