"""Transaction checks by a broker: the listener that is called, its answers, and the failures that harm nothing."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from pyrmq_core import (
    Client,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
)
from pyrmq_core.client.producer import transactions
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from tests.client.transacting import (
    CHECK,
    COMMIT,
    END,
    ROLLBACK,
    UNKNOW,
    Listener,
    check,
    checking_peer,
    half_record,
)
from tests.support.stage import Stage, settled

A0 = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOW])
async def test_a_check_is_answered(stage: Stage, client: Client, state: LocalTransactionState) -> None:
    listener = Listener(state)
    async with Producer("g", client=client, transaction_listener=listener):
        peer = await check(stage, client)
        await stage.brokers["broker-a"].wait_seen(END)
    (command,) = stage.brokers["broker-a"].of(END)
    assert command.is_oneway
    assert stage.brokers["broker-a"].seen[-1].peer is peer or peer in {
        seen.peer for seen in stage.brokers["broker-a"].seen
    }
    assert EndTransaction.from_command(command) == EndTransaction(
        producer_group="g",
        tran_state_table_offset=9,
        commit_log_offset=7777,
        commit_or_rollback=state.value,
        from_transaction_check=True,
        msg_id="U-1",
        transaction_id="TX-1",
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        broker_name="broker-a",
    )
    (message,) = listener.checked
    assert (message.topic, message.queue_id, message.body, message.tags) == ("orders", 3, b"half", "t")
    assert (message.broker_name, message.msg_id, message.queue_offset) == ("broker-a", "U-1", 9)


async def test_a_check_of_4_9_has_neither_topic_nor_broker(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, transaction_listener=Listener()):
        await check(stage, client, replace(CHECK, topic=None, broker_name=None))
        await stage.brokers["broker-a"].wait_seen(END)
    (command,) = stage.brokers["broker-a"].of(END)
    assert "topic" not in command.ext
    assert "bname" not in command.ext


async def test_a_check_that_raises_is_unknown(stage: Stage, client: Client) -> None:
    class Broken:
        async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
            raise OSError("database is down")

    async with Producer("g", client=client, transaction_listener=Broken()):
        await check(stage, client)
        await stage.brokers["broker-a"].wait_seen(END)
    end = EndTransaction.from_command(stage.brokers["broker-a"].of(END)[0])
    assert end.commit_or_rollback == 0
    assert end.remark == "checkLocalTransactionState Exception: OSError('database is down')"


async def test_checks_go_to_the_producer_of_their_group(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    committing, other = Listener(), Listener(ROLLBACK)
    async with (
        Producer("one", client=client, transaction_listener=committing),
        Producer("other", client=client, transaction_listener=other),
    ):
        for group in ("one", "other", "strangers"):
            with caplog.at_level(logging.INFO):
                await check(stage, client, replace(CHECK, record=half_record(group)))
        await stage.brokers["broker-a"].wait_seen(END, 2)
        await settled()
    assert len(committing.checked) == len(other.checked) == 1
    assert "asks for a transaction of group 'strangers', which has no producer here" in caplog.text


async def test_a_check_of_a_producer_without_a_listener_is_logged(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer("plain", client=client):
        with caplog.at_level(logging.INFO):
            await check(stage, client, replace(CHECK, record=half_record("plain")))
            await settled()
    assert "asks for a transaction of group 'plain', which has no producer here" in caplog.text


async def test_a_tenants_check_names_the_tenants_topic(stage: Stage, client: Client) -> None:
    listener = Listener()
    async with Producer("g", client=client, namespace="NS", transaction_listener=listener):
        await check(stage, client, replace(CHECK, record=half_record("NS%g", "NS%orders")))
        await stage.brokers["broker-a"].wait_seen(END)
    assert listener.checked[0].topic == "orders"
    assert EndTransaction.from_command(stage.brokers["broker-a"].of(END)[0]).producer_group == "NS%g"


async def test_a_check_that_cannot_be_read_harms_nothing(stage: Stage, client: Client) -> None:
    listener = Listener()
    async with Producer("g", client=client, transaction_listener=listener) as producer:
        await check(stage, client, replace(CHECK, record=b"nonsense"))
        await check(stage, client)
        await stage.brokers["broker-a"].wait_seen(END)
        await producer.send(Message("orders", b"x"), queue=A0)
    assert len(listener.checked) == 1


async def test_checks_are_bounded(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One at a time; beyond the bound they are passed over, and the broker asks again."""
    monkeypatch.setattr(transactions, "CHECKS_HELD", 3)
    released = threading.Event()
    at_once = 0

    class Waiting:
        def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
            nonlocal at_once
            at_once += 1
            assert at_once == 1
            released.wait(30)
            at_once -= 1
            return COMMIT

    async with Producer("g", client=client, transaction_listener=Waiting()):
        peer = await checking_peer(stage, client)
        with caplog.at_level(logging.INFO):
            for _ in range(5):
                await peer.connection.send_oneway(CHECK.to_command(), timeout=3)
            await settled()
        released.set()
        await stage.brokers["broker-a"].wait_seen(END, 3)
        await settled()
    assert len(stage.brokers["broker-a"].of(END)) == 3
    assert caplog.text.count("is passed over, because 3 wait") == 2


async def test_a_closed_producer_is_not_asked(stage: Stage, client: Client) -> None:
    listener = Listener()
    async with Producer("g", client=client, transaction_listener=listener):
        pass
    await check(stage, client)
    await settled()
    assert listener.checked == []
