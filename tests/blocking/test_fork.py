"""A child after fork works with the parent's objects and leaves the parent's connections alone."""

import os
from collections.abc import Awaitable

import pytest

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command, refusal
from tests.support.scripted import SEND, silence
from tests.support.scripts import output_of
from tests.support.stage import Stage

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

SENDS_ON_BOTH_SIDES = """
import os, sys
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Client, Producer, PullConsumer

queue = MessageQueue("orders", "broker-a", 0)
with Client(nameserver=sys.argv[1]) as client, Producer("g", client=client, send_timeout=SECONDS) as producer:
    consumer = PullConsumer("c", client=client)
    print(producer.send(Message("orders", b"parent"), queue=queue).queue_offset, flush=True)
    child = os.fork()
    if child == 0:
        offset = producer.send(Message("orders", b"child"), queue=queue).queue_offset
        print(offset, consumer.max_offset(queue), flush=True)
        EXIT
    assert os.waitpid(child, 0)[1] == 0
    print(producer.send(Message("orders", b"parent again"), queue=queue).queue_offset)
"""


@pytest.mark.parametrize("leaves", ["os._exit(0)", "sys.exit(0)", "producer.close(); client.close(); os._exit(0)"])
def test_parent_and_child_send(stage: Stage, leaves: str) -> None:
    script = SENDS_ON_BOTH_SIDES.replace("EXIT", leaves)
    assert output_of(script, stage.nameserver.address) == ["0", "1 2", "2"]
    bodies = [stored.body for stored in stage.stores["broker-a"].queues["orders", 0]]
    assert bodies == [b"parent", b"child", b"parent again"]
    by_connection: dict[int, list[bytes]] = {}
    for seen in stage.brokers["broker-a"].seen:
        if seen.command.code == SEND:
            by_connection.setdefault(id(seen.peer.connection), []).append(bytes(seen.command.body))
    assert list(by_connection.values()) == [[b"parent", b"parent again"], [b"child"]]


def test_a_fork_while_threads_send(stage: Stage) -> None:
    """Another thread may hold any lock at that moment."""
    script = """
import os, sys, threading
from pyrmq_core import Message
from pyrmq_core.blocking import Producer

producer = Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS).open()
stop = threading.Event()

def send():
    while not stop.is_set():
        producer.send(Message("orders", b"thread"), timeout=SECONDS)

threads = [threading.Thread(target=send) for _ in range(8)]
for thread in threads:
    thread.start()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        producer.send(Message("orders", b"child"), timeout=SECONDS)
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
stop.set()
for thread in threads:
    thread.join()
producer.close()
"""
    assert output_of(script, stage.nameserver.address) == [str([0] * 8)]
    assert sum(stored.body == b"child" for stored in stage.stored("orders")) == 8


def test_multiprocessing_by_fork(stage: Stage) -> None:
    """Errors come back from a pool too: they can be pickled."""
    script = """
import multiprocessing, sys
from pyrmq_core import InvalidMessage, Message, NoRoute, SendFailed
from pyrmq_core.blocking import Producer

producer = Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS)

def send(text):
    return producer.send(Message(*text), timeout=SECONDS).msg_id

if __name__ == "__main__":
    producer.send(Message("orders", b"parent"))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        ids = pool.map(send, [("orders", b"%d" % number) for number in range(30)], chunksize=1)
        print(len(set(ids)))
        for bad, kind in (("unheard", NoRoute), ("no name!", InvalidMessage), ("refused", SendFailed)):
            try:
                pool.apply(send, [(bad, b"x")])
            except kind as error:
                print(kind.__name__, error.outcome.name, len(error.attempts))
    producer.send(Message("orders", b"parent"))
    producer.close()
"""
    stage.topic("refused", brokers=["broker-a"])
    store = stage.stores["broker-a"]

    def refuse_one_topic(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        return refusal(13, "no") if request.ext["b"] == "refused" else store(request, peer)

    stage.brokers["broker-a"].always(SEND, refuse_one_topic)
    assert output_of(script, stage.nameserver.address) == [
        "30",
        "NoRoute NOT_STORED 0",
        "InvalidMessage NOT_STORED 0",
        "SendFailed NOT_STORED 1",
    ]


def test_a_child_does_not_touch_what_its_parent_has_open(stage: Stage) -> None:
    """Windows and readers belong to the loop they were opened on; leaving them in a child returns at once."""
    for number in range(100):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number)
    script = """
import os, sys
from pyrmq_core import AnyQueue, InvalidState, Message, MessageQueue, encode_one
from pyrmq_core.blocking import Producer, PullConsumer

queue = MessageQueue("orders", "broker-a", 0)
server = sys.argv[1]
with Producer("g", nameserver=server, send_timeout=SECONDS) as producer, PullConsumer("c", nameserver=server) as reads:
    reads.message_queues("orders")
    with producer.open_window() as window, reads.read(queue, 0, 100) as pulls:
        child = os.fork()
        if child == 0:
            payload = encode_one(Message("orders", b"x"), "1")
            for use in (lambda: window.put(payload, AnyQueue()), window.drain, lambda: list(pulls)):
                try:
                    use()
                except InvalidState as error:
                    print("a child after fork opens its own" in str(error), flush=True)
            window.close()
            pulls.close()
            producer.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        window.put(encode_one(Message("orders", b"x"), "1"), AnyQueue())
        print(window.drain().messages, sum(1 for _ in pulls))
"""
    assert output_of(script, stage.nameserver.address) == ["True", "True", "True", "1 4"]


def test_a_grandchild_works_too(stage: Stage) -> None:
    script = """
import os, sys
from pyrmq_core import Message
from pyrmq_core.blocking import Producer

producer = Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS)
for depth in range(3):
    producer.send(Message("orders", b"%d" % depth))
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        producer.send(Message("orders", b"after"))
        os._exit(status >> 8)
producer.send(Message("orders", b"leaf"))
os._exit(0)
"""
    assert output_of(script, stage.nameserver.address) == []
    assert sorted(stored.body for stored in stage.stored("orders")) == [b"0", b"1", b"2"] + [b"after"] * 3 + [b"leaf"]


def test_a_child_of_a_parent_that_waits(stage: Stage) -> None:
    """The parent's own call is under way while the child lives and dies."""
    stage.brokers["broker-a"].on(SEND, silence)
    script = """
import os, sys
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Producer

with Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS) as producer:
    silent, working = (MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b"))
    future = producer.send_soon(Message("orders", b"first"), timeout=1.5, queue=silent)
    other = producer.send_soon(Message("orders", b"second"), timeout=SECONDS, queue=working)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(type(future.exception(SECONDS)).__name__, other.exception(SECONDS))
"""
    assert output_of(script, stage.nameserver.address) == ["SendFailed None"]


def test_the_first_use_imports_nothing(stage: Stage) -> None:
    """A fork while another thread imports leaves that module's lock held in the child for ever."""
    script = """
import sys
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Producer, PullConsumer

before = set(sys.modules)
queue = MessageQueue("orders", "broker-a", 0)
with Producer("g", nameserver=sys.argv[1], send_timeout=SECONDS) as producer:
    producer.send(Message("orders", b"x" * 5000))
    producer.send_batch([Message("orders", b"x")] * 10, queue=queue)
    producer.send_soon(Message("orders", b"x")).result(SECONDS)
    with PullConsumer("c", nameserver=sys.argv[1]) as consumer:
        consumer.pull(queue, 0)
        consumer.commit(queue, 1)
        with consumer.read(queue, 0, 5) as pulls:
            list(pulls)
try:
    with Producer("g", nameserver="127.0.0.1:1") as producer:
        producer.send(Message("orders", b"x"))
except Exception as error:
    print(type(error).__name__)
print(sorted(set(sys.modules) - before))
"""
    assert output_of(script, stage.nameserver.address) == ["NoNameServer", "[]"]
