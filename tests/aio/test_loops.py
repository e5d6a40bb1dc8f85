"""Several asyncio loops, loops that close under calls, children after fork, Ctrl-C, and a library loop that breaks."""

import asyncio
import logging
import os
import threading

import pytest

from pyrmq_core import Message, MessageQueue, SendResult
from pyrmq_core.aio import Client, Producer
from tests.support.scripted import SEND, silence
from tests.support.scripts import output_of, run_script
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)


def test_one_producer_serves_several_loops_at_once(stage: Stage) -> None:
    client = Client(nameserver=stage.nameserver.address)
    producer = Producer("g", client=client, send_timeout=60)
    results: list[SendResult] = []

    async def send() -> None:
        futures = [await producer.send_soon(Message("orders", b"x")) for _ in range(100)]
        results.extend(await asyncio.gather(*futures))
        results.append(await producer.send(Message("orders", b"y")))

    threads = [threading.Thread(target=asyncio.run, args=(send(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(results) == 404

    async def end() -> None:
        await producer.close()
        await client.close()

    asyncio.run(end())


def test_a_loop_that_closes_with_calls_under_way(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Their ends come to a closed loop: they are dropped without a word, and the next loop goes on."""
    producer = Producer("g", nameserver=stage.nameserver.address)
    stage.brokers["broker-a"].always(SEND, silence)

    async def begin() -> asyncio.Future[SendResult]:
        return await producer.send_soon(Message("orders", b"x"), queue=A0, timeout=0.3)

    async def go_on() -> None:
        await asyncio.sleep(0.5)  # the first loop's send ends meanwhile
        stage.brokers["broker-a"].always(SEND, stage.stores["broker-a"])
        assert (await producer.send(Message("orders", b"y"), queue=A0)).queue_offset == 0
        await producer.close()

    loop = asyncio.new_event_loop()
    future = loop.run_until_complete(begin())
    loop.close()
    with caplog.at_level(logging.WARNING):
        asyncio.run(go_on())
    assert not future.done()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_after_fork_makes_its_own(stage: Stage) -> None:
    script = """
import asyncio, os, sys
from pyrmq_core import InvalidState, Message, MessageQueue
from pyrmq_core.aio import Producer

queue = MessageQueue("orders", "broker-a", 0)
opened, unopened = [Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS) for _ in range(2)]

async def send(producer, body):
    return (await producer.send(Message("orders", body), queue=queue)).queue_offset

print(asyncio.run(send(opened, b"parent")), flush=True)
child = os.fork()
if child == 0:
    print(asyncio.run(send(unopened, b"child")), flush=True)
    try:
        asyncio.run(send(opened, b"x"))
    except InvalidState as error:
        print("refused" if "process" in str(error) else error, flush=True)
    asyncio.run(opened.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(asyncio.run(send(opened, b"parent again")))
asyncio.run(opened.close())
"""
    assert output_of(script, stage.nameserver.address) == ["0", "1", "refused", "2"]


def test_ctrl_c_ends_a_program_in_order(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    script = """
import asyncio, os, signal, sys
from pyrmq_core import Message
from pyrmq_core.aio import Producer

async def main():
    async with Producer("g", nameserver=sys.argv[1]) as producer:
        await producer.message_queues("orders")
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        try:
            await producer.send(Message("orders", b"x"), timeout=600)
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            raise
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = run_script(script, stage.nameserver.address)
    assert (ended.code, ended.out.split(), ended.err) == (0, ["cancelled", "interrupted"], "")


def test_a_library_loop_that_breaks_ends_every_wait(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    script = """
import asyncio, logging, sys
from pyrmq_core import InvalidState, Message, SendFailed
from pyrmq_core.aio import Producer
from tests.blocking.broken_loop import break_a_task

logging.disable()

async def main():
    producer = await Producer("g", nameserver=sys.argv[1]).open()
    await producer.message_queues("orders")
    soon = await producer.send_soon(Message("orders", b"x"), timeout=600)
    chosen = asyncio.create_task(
        producer.send(Message("orders", b"x"), timeout=600, select=lambda queues, _: queues[0]))
    send = asyncio.create_task(producer.send(Message("orders", b"x"), timeout=600))
    await asyncio.sleep(0.2)
    loop = break_a_task()
    async with asyncio.timeout(SECONDS):
        for end in await asyncio.gather(soon, chosen, send, return_exceptions=True):
            assert isinstance(end, InvalidState | SendFailed), repr(end)
        await asyncio.to_thread(loop.join)  # until then a send may still be begun, and end as those did
        try:
            await producer.send(Message("orders", b"x"))
        except InvalidState:
            print("refused")
        await producer.close()
asyncio.run(main())
"""
    assert output_of(script, stage.nameserver.address) == ["refused"]
