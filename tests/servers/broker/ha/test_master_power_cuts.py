"""The power of a synchronous master is cut under load: its slave has every message that was acknowledged."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.embedded.forgetful_files import cut_power
from tests.servers.broker.ha.test_ha_client import SLAVE
from tests.servers.broker.serving import serving, until


@pytest.mark.parametrize("seed", range(3))
async def test_a_slave_has_what_a_master_acknowledged_before_its_power_was_cut(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    waits = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20000", "haTransferBatchSize": "100"}
    acknowledged: set[tuple[int, int]] = set()
    async with serving(tmp_path / "master", **waits) as master:
        follows = {**SLAVE, "haMasterAddress": master.running.ha_address}
        async with serving(tmp_path / "slave", **follows) as slave, trio.open_nursery() as nursery:

            async def send(number: int) -> None:
                with contextlib.suppress(RocketMQError):
                    answer = await master.send("T", b"%d" % number, queue_id=number % 4)
                    if answer.code == ResponseCode.SUCCESS:
                        place = decode_offset_msg_id(MessageStored.from_command(answer).msg_ids).offset
                        assert place < slave.running.broker.store.end  # before the power is cut
                        acknowledged.add((int(answer.ext["queueId"]), int(answer.ext["queueOffset"])))

            for number in range(500):
                nursery.start_soon(send, number)
            most = draw.randrange(1, 400)
            await until(lambda: len(acknowledged) >= most)
            cut_power(master.running)
            await master.ended.wait()
            nursery.cancel_scope.cancel()
            had = set(acknowledged)
            store = slave.running.broker.store
            await until(lambda: {queue_id for queue_id, _ in had} <= set(store.reader.queues_of("T")))
            for queue_id in range(4):
                last = max([offset for number, offset in had if number == queue_id], default=-1)
                await until(partial(has_message, store, queue_id, last))


def has_message(store: MessageStore, queue_id: int, offset: int) -> bool:
    key = ("T", queue_id)
    return offset < store.reader.bounds(key)[1] and (
        offset < 0 or store.reader.record(store.reader.entry(key, offset).physical_offset) is not None
    )
