"""Transactions: the half message, the local work, the end, and every failure between them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.lowlevel

from pyrmq_core import (
    Client,
    EndTransactionContext,
    InvalidMessage,
    InvalidState,
    LocalTransactionState,
    Message,
    Producer,
    SendFailed,
    SendResult,
    SendStatus,
)
from pyrmq_core.client.producer import transactions
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from tests.client.transacting import (
    BEAT,
    COMMIT,
    END,
    HALF,
    ROLLBACK,
    UNKNOW,
    Listener,
    check,
)
from tests.support.scripted import SEND, answer, refuse
from tests.support.stage import Stage, settled
from tests.support.waiting import until


@pytest.fixture
def halves(stage: Stage) -> Stage:
    """Both brokers store half messages at Java's place of the golden logs: queue offset 5, commit log 6668."""
    for server in stage.brokers.values():
        server.always(SEND, answer(HALF.to_command()))
    return stage


async def ends(stage: Stage) -> list[tuple[str, EndTransaction, Command]]:
    """Returns the END_TRANSACTIONs that arrived, with their broker; waits, as they are one-way."""
    await settled()
    return [
        (name, EndTransaction.from_command(command), command)
        for name, server in stage.brokers.items()
        for command in server.of(END)
    ]


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOW])
async def test_the_end_is_sent(halves: Stage, client: Client, state: LocalTransactionState) -> None:
    seen: list[tuple[Message, SendResult]] = []

    def local(message: Message, result: SendResult) -> LocalTransactionState:
        seen.append((message, result))
        return state

    message = Message("orders", b"x", tags="t", keys="k")
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        ended = await producer.send_in_transaction(message, local)
        ((name, end, command),) = await ends(halves)
    assert ended.local_transaction_state is state
    assert ended.error is None
    assert seen == [(message, ended.result)]
    assert command.is_oneway
    assert name == ended.result.message_queue.broker_name
    assert end == EndTransaction(
        producer_group="g",
        tran_state_table_offset=5,
        commit_log_offset=6668,
        commit_or_rollback=state.value,
        from_transaction_check=False,
        msg_id=ended.result.msg_id,
        transaction_id="TID",
        topic="orders",
        broker_name=name,
    )


async def test_the_half_message_says_what_it_is(halves: Stage, client: Client) -> None:
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        await producer.send_in_transaction(Message("orders", b"x"), lambda *_: COMMIT)
        await producer.send_in_transaction(Message("orders", b"y" * 5000), lambda *_: COMMIT)
    (_, plain), (_, compressed) = halves.sends()
    assert (plain.sys_flag, compressed.sys_flag) == (4, 769 | 4)
    properties = decode_properties(plain.properties or "")
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "g")


async def test_async_local_work_is_awaited(halves: Stage, client: Client) -> None:
    async def local(message: Message, result: SendResult) -> LocalTransactionState:
        await trio.lowlevel.checkpoint()
        return COMMIT

    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        assert (await producer.send_in_transaction(Message("orders", b"x"), local)).local_transaction_state is COMMIT


async def test_plain_local_work_does_not_hold_up_the_loop(halves: Stage, client: Client) -> None:
    released = threading.Event()

    def local(message: Message, result: SendResult) -> LocalTransactionState:
        assert released.wait(30)
        return COMMIT

    async with (
        Producer("g", client=client, transaction_listener=Listener()) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(producer.send_in_transaction, Message("orders", b"x"), local)
        await halves.brokers["broker-a"].wait_seen(BEAT)  # the loop goes on meanwhile
        released.set()
    assert len(await ends(halves)) == 1


@pytest.mark.parametrize(
    "local",
    [
        lambda *_: 1 / 0,
        lambda *_: None,
        lambda *_: "COMMIT",
        lambda *_: 8,
    ],
)
async def test_what_raises_or_is_no_state_is_unknown(
    halves: Stage,
    client: Client,
    local: Callable[..., LocalTransactionState],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "_FAILED", RareLines())  # another test of this process may have had the line
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        with caplog.at_level(logging.INFO):
            ended = await producer.send_in_transaction(Message("orders", b"x"), local)
        ((_, end, _),) = await ends(halves)
    assert ended.local_transaction_state is UNKNOW
    assert isinstance(ended.error, ZeroDivisionError | TypeError)
    assert end.commit_or_rollback == 0
    assert end.remark is not None
    assert end.remark.startswith("executeLocalTransactionBranch exception: ")
    assert "state is unknown, the broker will ask" in caplog.text


@pytest.mark.parametrize("status", [10, 11, 12])
async def test_what_is_not_stored_safely_is_rolled_back(stage: Stage, client: Client, status: int) -> None:
    """FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: the local work is not even begun."""
    for server in stage.brokers.values():
        server.always(SEND, answer(replace(HALF.to_command(), code=status)))
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        ended = await producer.send_in_transaction(Message("orders", b"x"), lambda *_: pytest.fail("was begun"))
        assert ended.result.status is SendStatus(status)
        assert ended.local_transaction_state is ROLLBACK
        transaction = await producer.begin_transaction(Message("orders", b"x"))
        assert not transaction.is_safe
        ended = await producer.end_transaction(transaction, COMMIT)
        assert ended.local_transaction_state is ROLLBACK
        assert [end.commit_or_rollback for _, end, _ in await ends(stage)] == [12, 12]


async def test_begin_and_end_by_hand(halves: Stage, client: Client) -> None:
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        transaction = await producer.begin_transaction(Message("orders", b"x"))
        assert await ends(halves) == []
        await producer.end_transaction(transaction, ROLLBACK, reason="no such customer")
        ((_, end, _),) = await ends(halves)
    assert (end.commit_or_rollback, end.remark) == (12, "no such customer")


async def test_a_half_message_that_fails_begins_nothing(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(16, "the broker sending transaction message is forbidden"))
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        with pytest.raises(SendFailed, match="forbidden"):
            await producer.send_in_transaction(Message("orders", b"x"), lambda *_: pytest.fail("was begun"))
        assert await ends(stage) == []


async def test_an_end_that_cannot_be_sent_is_logged(
    halves: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker will check: the local transaction has happened, so the caller gets no error."""
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        transaction = await producer.begin_transaction(Message("orders", b"x"))
        for server in halves.brokers.values():
            await server.stop()
        await settled()
        with caplog.at_level(logging.INFO):
            ended = await producer.end_transaction(transaction, COMMIT)
    assert ended.local_transaction_state is COMMIT
    assert "did not reach the broker, which checks it" in caplog.text


async def test_without_a_listener_there_are_no_transactions(client: Client) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(InvalidState, match="has no transaction_listener"):
            await producer.send_in_transaction(Message("orders", b"x"), lambda *_: COMMIT)


async def test_a_transaction_with_a_delay_a_priority_or_a_lite_topic_is_refused(client: Client) -> None:
    """Java drops the first two without a word. 5.5.0 shows the third before the commit."""
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        with pytest.raises(InvalidMessage, match="cannot be delayed"):
            await producer.begin_transaction(Message("orders", b"x", delay_level=1))
        with pytest.raises(InvalidMessage, match="has no priority, brokers remove it"):
            await producer.begin_transaction(Message("orders", b"x", priority=1))
        with pytest.raises(InvalidMessage, match="has no lite topic, which would show it before the commit"):
            await producer.begin_transaction(Message("orders", b"x", lite_topic="a"))


async def test_hooks_hear_of_ends(halves: Stage, client: Client) -> None:
    heard: list[EndTransactionContext] = []

    class Hook:
        def end_transaction(self, context: EndTransactionContext) -> None:
            heard.append(context)

    async with Producer("g", client=client, transaction_listener=Listener(), hooks=[Hook()]) as producer:
        ended = await producer.send_in_transaction(
            Message("orders", b"x", tags="t", keys=["a", "b"]), lambda *_: COMMIT
        )
        await check(halves, client)
        await until(lambda: len(heard) == 2)  # the check is answered in a thread
    own, requested = heard
    assert (own.msg_id, own.transaction_id, own.state, own.from_check) == (ended.result.msg_id, "TID", COMMIT, False)
    assert (own.topic, own.tags, own.keys, own.producer_group) == ("orders", "t", "a b", "g")
    assert (requested.msg_id, requested.transaction_id, requested.from_check) == ("U-1", "TX-1", True)
