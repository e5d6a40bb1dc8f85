"""Transactions against our own broker, whose checks follow each other in milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from pyrmq_core import Message, PullConsumer
from pyrmq_core.testing import EmbeddedCluster
from tests.support.transaction_jobs import (
    COMMIT,
    DISCARDED_TOPIC,
    Ledger,
    another_producer_inherits,
    begin,
    every_end_is_honoured,
    fresh,
    made_topic,
    transacting,
    visible,
    wait_visible,
)
from tests.support.waiting import until

QUICK = {"transactionTimeOut": "1", "transactionCheckInterval": "40", "transactionCheckMax": "3"}
IMMUNE = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}


@pytest.fixture
async def nameserver() -> AsyncIterator[str]:
    async with EmbeddedCluster(settings=QUICK) as cluster:
        yield cluster.nameserver


async def test_every_end_is_honoured(nameserver: str) -> None:
    await every_end_is_honoured(nameserver, most_checks=3)


async def test_another_producer_inherits(nameserver: str) -> None:
    await another_producer_inherits(nameserver)


async def test_an_end_that_crosses_a_check_delivers_once(nameserver: str) -> None:
    """The broker stored the half message again and asks about it; the producer's own end names the first one."""
    topic, ledger = await made_topic(nameserver), Ledger({b"late": COMMIT}, is_held=True)
    async with transacting(nameserver, ledger) as (producer, consumer):
        begun = await begin(producer, topic, b"late")
        await until(lambda: ledger.arrived, 30)
        await producer.end_transaction(begun[b"late"], COMMIT)
        await wait_visible(consumer, topic, {b"late"})
        ledger.released.set()
        discarded = (await begin(producer, topic, b"behind it"))[b"behind it"]
        await until_discarded(consumer, discarded.result.msg_id)
        assert [message.body for message in await visible(consumer, topic)] == [b"late"]


async def test_an_immune_message_is_checked_late_and_its_end_is_final() -> None:
    """Stored again at each round, it is no longer at the offset that its end names."""
    async with EmbeddedCluster(settings=QUICK) as cluster:
        nameserver, ledger = cluster.nameserver, Ledger({})
        topic = await made_topic(nameserver)
        async with transacting(nameserver, ledger) as (producer, consumer):
            begun = {}
            for body in (b"open", b"ended"):
                begun[body] = await producer.begin_transaction(Message(topic, body, properties=IMMUNE))
            await until_discarded(consumer, (await begin(producer, topic, b"3 rounds"))[b"3 rounds"].result.msg_id)
            await producer.end_transaction(begun[b"ended"], COMMIT)
            await wait_visible(consumer, topic, {b"ended"})
            later = (await begin(producer, topic, b"3 more"))[b"3 more"]
            await until_discarded(consumer, later.result.msg_id)
            assert ledger.counts().keys() == {b"3 rounds", b"3 more"}
            assert [message.body for message in await visible(consumer, topic)] == [b"ended"]
            halves = await visible(consumer, "RMQ_SYS_TRANS_HALF_TOPIC")
            assert halves[-1].body == b"open"
            assert "TRANSACTION_CHECK_TIMES" not in halves[-1].properties
            last_of_ended = max(half.queue_offset for half in halves if half.body == b"ended")
            assert last_of_ended < min(half.queue_offset for half in halves if half.body == b"3 more")


async def until_discarded(consumer: PullConsumer, msg_id: str) -> None:
    """Returns when this message was checked as often as messages are, which takes as many rounds."""
    with trio.fail_after(30):
        while msg_id not in [message.msg_id for message in await visible(consumer, DISCARDED_TOPIC)]:  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_checks_go_on_after_a_kill_with_their_count() -> None:
    """Counts checks on both sides of a kill: no number comes twice, and nothing is delivered again."""
    async with EmbeddedCluster(settings={**QUICK, "transactionCheckMax": "6"}) as cluster:
        nameserver, ledger = cluster.nameserver, Ledger({})
        topic, group = await made_topic(nameserver), fresh("killed")
        async with transacting(nameserver, ledger, group) as (producer, _):
            begun = await begin(producer, topic, b"killed", b"committed")
            await producer.end_transaction(begun[b"committed"], COMMIT)
            await until(lambda: ledger.counts()[b"killed"] >= 2, 30)
            await cluster.kill("broker-a")
        await cluster.start("broker-a")
        async with transacting(nameserver, ledger, group) as (producer, consumer):
            await begin(producer, topic, b"behind it")
            await until_discarded(consumer, begun[b"killed"].result.msg_id)
            checks = [message for message in ledger.checked if message.body == b"killed"]
            counts = [int(message.properties["TRANSACTION_CHECK_TIMES"]) for message in checks]
            assert counts == sorted(set(counts))
            assert [message.body for message in await visible(consumer, topic)] == [b"committed"]


async def test_a_power_cut_after_a_commit_loses_nothing() -> None:
    """The half message is on the medium when it is acknowledged; its commit may be lost, and is found by a check."""
    settings = {**QUICK, "transactionTimeOut": "500", "transactionCheckMax": "1000", "flushDiskType": "SYNC_FLUSH"}
    async with EmbeddedCluster(settings=settings, forgetful=True) as cluster:
        nameserver, ledger = cluster.nameserver, Ledger({b"committed": COMMIT})
        topic, group = await made_topic(nameserver), fresh("cut")
        async with transacting(nameserver, ledger, group) as (producer, _):
            begun = await begin(producer, topic, b"committed")
            await producer.end_transaction(begun[b"committed"], COMMIT)
            await cluster.power_cut("broker-a")
        await cluster.start("broker-a")
        async with transacting(nameserver, ledger, group) as (producer, consumer):
            await begin(producer, topic, b"heartbeat")
            visible = await wait_visible(consumer, topic, {b"committed"})
            assert [message.msg_id for message in visible] == [begun[b"committed"].result.msg_id]
