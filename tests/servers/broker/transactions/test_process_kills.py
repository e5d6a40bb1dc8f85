"""A broker's process killed while transactions run: none is lost, shown without a commit, or left in between."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import trio

from pyrmq_core import Message, Producer, RocketMQError
from tests.support.our_cluster import OurCluster, boot_our_cluster
from tests.support.transaction_jobs import (
    COMMIT,
    ROLLBACK,
    UNKNOW,
    Ledger,
    fresh,
    made_topic,
    transacting,
    wait_visible,
)
from tests.support.waiting import until

SETTINGS = {"transactionTimeOut": "300", "transactionCheckInterval": "100", "transactionCheckMax": "100000"}
SENDERS = 4
KILLS = 2
AT_LEAST = 40  # half messages between two kills


class Book:
    """The end of each local transaction, by the message's body, once its half message is known to be stored."""

    def __init__(self) -> None:
        self.ledger = Ledger({})
        self.draw = random.Random(20)

    async def send(self, producer: Producer, topic: str, sender: int) -> None:
        """Sends until cancelled; a third of the ends is left to the broker's checks."""
        number = 0
        while True:
            number += 1
            body = b"%d-%d" % (sender, number)
            with suppress(RocketMQError):
                transaction = await producer.begin_transaction(Message(topic, body), timeout=1)
                state = self.ledger.states[body] = self.draw.choice((COMMIT, COMMIT, ROLLBACK))
                await producer.end_transaction(transaction, self.draw.choice((state, state, UNKNOW)))

    def bodies(self, state: object) -> set[bytes]:
        return {body for body, ending in self.ledger.states.items() if ending is state}


async def test_kills_while_transactions_run() -> None:
    with boot_our_cluster(("broker-a",), broker_settings=SETTINGS) as cluster:
        nameserver, book = cluster.nameserver.address, Book()
        topic, group = await made_topic(nameserver), fresh("killed")
        async with transacting(nameserver, book.ledger, group) as (producer, _), trio.open_nursery() as nursery:
            for sender in range(SENDERS):
                nursery.start_soon(book.send, producer, topic, sender)
            for _ in range(KILLS):
                state_count = len(book.ledger.states)
                await until(lambda state_count=state_count: len(book.ledger.states) >= state_count + AT_LEAST, 60)  # type: ignore[misc]
                await restarted(cluster)
            nursery.cancel_scope.cancel()
        async with transacting(nameserver, book.ledger, group) as (heir, consumer):
            await heir.begin_transaction(Message(topic, b"its heartbeat"))
            deliveries = Counter(message.body for message in await wait_visible(consumer, topic, book.bodies(COMMIT)))
        assert not deliveries.keys() & book.bodies(ROLLBACK)
        twice = [body for body, count in deliveries.items() if count > 1]
        assert len(twice) <= KILLS, twice
        assert len(book.ledger.states) >= KILLS * AT_LEAST


async def restarted(cluster: OurCluster) -> None:
    """Kills the broker with SIGKILL, and starts it again."""
    broker = cluster.brokers["broker-a"]
    await trio.to_thread.run_sync(broker.kill)
    await trio.to_thread.run_sync(broker.start)
