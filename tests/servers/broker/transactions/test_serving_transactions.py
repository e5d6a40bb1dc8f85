"""Transactions over real sockets: half messages, their ends, and the refusals of RocketMQ."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction, ResumeCheckHalfMessage
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.store.batch_pieces import piece
from tests.servers.broker.serving import NOW_MS, Served, message, serving, until
from tests.servers.broker.transactions.halves import HALF, raw

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PREPARED = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U1\x02TAGS\x01t\x02"
COMMIT, ROLLBACK = 8, 12


async def prepare(served: Served, body: bytes = b"body", *, topic: str = "T", queue_id: int = 2) -> MessageStored:
    answer = await served.ask(replace(message(topic, body, PREPARED, queue_id), sys_flag=4).to_command())
    assert answer.code == ResponseCode.SUCCESS, answer
    return MessageStored.from_command(answer)


def end(half: MessageStored, state: int, **changed: object) -> Command:
    return replace(
        EndTransaction(
            producer_group="P",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=decode_offset_msg_id(half.msg_ids).offset,
            commit_or_rollback=state,
            msg_id="U1",
        ),
        **changed,  # type: ignore[arg-type]
    ).to_command()


async def stored(served: Served, topic: str, queue_id: int = 0) -> list[StoredRecord]:
    return list(iterate_records((await served.pull(topic, queue_id)).records, check_crc=True))


async def no_topic(topic: TopicConfig) -> None:
    raise AssertionError(f"{topic.topic} is not needed")


async def produce(served: Served, hear: Handler = lambda request, peer: None) -> Served:
    """Connects a producer of the group; `hear` takes its checks."""
    producer = served.another(hear)
    assert (await producer.ask(HeartBeat("producer", ("P",), ()).to_command())).code == 0
    return producer


@asynccontextmanager
async def quiet(directory: Path, **settings: str) -> AsyncIterator[Served]:
    """Yields a broker that does not begin checks by itself."""
    async with serving(directory, **{"transactionCheckInterval": "3600000", **settings}) as served:
        yield served


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_message_is_visible_when_it_is_committed(tmp_path: Path, flush: str) -> None:
    async with quiet(tmp_path, flushDiskType=flush) as served:
        half = await prepare(served)
        assert (half.queue_id, half.queue_offset, half.transaction_id) == (2, 0, "U1")
        assert await stored(served, "T", 2) == []
        assert (await served.ask(end(half, COMMIT))).code == 0
        (record,) = await stored(served, "T", 2) or list(
            iterate_records((await served.pull("T", 2, wait_ms=9000)).records)
        )
        assert (record.body, record.queue_offset, record.sys_flag) == (b"body", 0, 8)
        assert record.prepared_transaction_offset == decode_offset_msg_id(half.msg_ids).offset
        assert record.born_timestamp_ms == NOW_MS
        properties = decode_properties(record.properties)
        assert properties["__transactionId__"] == properties["UNIQ_KEY"] == "U1"
        assert not properties.keys() & {"REAL_TOPIC", "REAL_QID"}


async def test_a_rollback_is_never_visible_and_leaves_no_gap(tmp_path: Path) -> None:
    async with quiet(tmp_path) as served:
        halves = [await prepare(served, body) for body in (b"0", b"1", b"2")]
        for half, state in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True):
            assert (await served.ask(end(half, state))).code == 0
        records = await stored(served, "T", 2)
        assert [(record.queue_offset, record.body) for record in records] == [(0, b"0"), (1, b"2")]
        assert [record.body for record in await stored(served, OP_TOPIC)] == [b"0", b"1", b"2"]
        assert len(await stored(served, HALF_TOPIC)) == 3


async def test_an_unknown_state_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    """RocketMQ leaves the request unanswered; a producer sends it one way, and is not answered here, either."""
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        for state in (0, 4, 99):
            await served.pool.send_oneway(served.running.address, end(half, state), timeout=5)
            answer = await served.ask(end(half, state))
            assert (answer.code, f"commitOrRollback is {state}" in (answer.remark or "")) == (
                ResponseCode.SYSTEM_ERROR,
                True,
            )
        assert await stored(served, OP_TOPIC) == []
        assert (await served.ask(end(half, COMMIT))).code == 0
        assert len(await stored(served, OP_TOPIC)) == 1


async def test_a_second_commit_delivers_nothing_more(tmp_path: Path) -> None:
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        for state in (COMMIT, COMMIT, ROLLBACK, COMMIT):
            assert (await served.ask(end(half, state))).code == 0
        assert len(await stored(served, "T", 2)) == 1


async def test_a_commit_after_a_rollback_counts(tmp_path: Path) -> None:
    """RocketMQ delivers it, too: nothing says which of the two was the mistake, and a message is not lost."""
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        for state in (ROLLBACK, COMMIT):
            assert (await served.ask(end(half, state))).code == 0
        assert len(await stored(served, "T", 2)) == 1


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producer_group": "Q"}, "The producer group wrong"),
        ({"tran_state_table_offset": 1}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 60}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_of_another_message_is_refused(tmp_path: Path, changed: dict[str, object], remark: str) -> None:
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        for state in (COMMIT, ROLLBACK):
            answer = await served.ask(end(half, state, **changed))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert await stored(served, "T", 2) == await stored(served, OP_TOPIC) == []


async def test_only_half_messages_can_be_ended(tmp_path: Path) -> None:
    """A committed message still names its group; an end of it must not store it again."""
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        await served.ask(end(half, COMMIT))
        (committed,) = await stored(served, "T", 2)
        changed = {"commit_log_offset": committed.commit_log_offset}
        answer = await served.ask(end(half, COMMIT, **changed))
        assert answer.remark == "Find prepared transaction message failed"
        assert len(await stored(served, "T", 2)) == 1


async def test_a_record_inside_a_body_is_no_half_message(tmp_path: Path) -> None:
    """A producer of one topic cannot commit a message that it made up into another."""
    async with quiet(tmp_path) as served:
        await prepare(served)
        start = served.running.broker.store.end
        # The body of the record that carries it begins after 88 bytes.
        forged = raw(
            replace(HALF, pieces=[piece(0, b"forged", b"REAL_TOPIC\x01T\x02REAL_QID\x012\x02PGROUP\x01P\x02")]),
            at=start + 88,
            queue_offset=0,
        )
        await served.send("Mine", forged)
        assert served.running.broker.store.reader.record(start + 88) == forged
        real = MessageStored("7F00000100002A9F0000000000000000", 2, 0, "U1", "R")
        answer = await served.ask(end(real, COMMIT, commit_log_offset=start + 88))
        assert answer.remark == "Find prepared transaction message failed"
        assert await stored(served, "T", 2) == []


@pytest.mark.parametrize("waits", ["true", "false"])
async def test_an_end_before_the_sync_waits_for_it(tmp_path: Path, waits: str) -> None:
    """A half message that does not wait for the medium is acknowledged before its queue names it."""
    async with quiet(tmp_path, flushDiskType="SYNC_FLUSH") as served:
        properties = f"{PREPARED}WAIT\x01{waits}\x02"
        for number in range(5):
            half = MessageStored.from_command(await served.send("T", b"%d" % number, properties, 2))
            assert (await served.ask(end(half, COMMIT))).code == 0
        assert len(await stored(served, OP_TOPIC)) >= 4


async def test_an_end_after_the_immunity_is_left_to_the_check(tmp_path: Path) -> None:
    async with quiet(tmp_path) as served:
        properties = PREPARED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02"  # it was born long ago
        half = MessageStored.from_command(await served.send("T", properties=properties))
        answer = await served.ask(end(half, COMMIT))
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert await stored(served, "T") == []
        assert (await served.ask(end(half, COMMIT, from_transaction_check=True))).code == 0
        assert len(await stored(served, "T")) == 1


REFUSED = {
    "switched off": ({"rejectTransactionMessage": "true"}, PREPARED, 4, 16, "sending transaction message is forbidden"),
    "delayed": ({}, PREPARED + "DELAY\x013\x02", 4, 13, "cannot be delayed"),
    "timer": ({}, PREPARED + "TIMER_DELAY_MS\x013\x02", 4, 13, "cannot be delayed"),
    "prepared": ({}, "", 4, 13, "lack TRAN_MSG"),
    "rolled back": ({}, "", 12, 13, "lack TRAN_MSG"),
    "no room": ({}, PREPARED + "k\x01" + "v" * 32_560 + "\x02", 4, 13, "the message is illegal"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_kept_is_refused(tmp_path: Path, case: str) -> None:
    settings, properties, sys_flag, code, text = REFUSED[case]
    async with quiet(tmp_path, **settings) as served:
        answer = await served.ask(replace(message("T", properties=properties), sys_flag=sys_flag).to_command())
        assert (answer.code, text in (answer.remark or "")) == (code, True), answer
        batch = replace(message("T", properties=PREPARED), batch=True)
        assert (await served.ask(batch.to_command())).code == ResponseCode.MESSAGE_ILLEGAL
        assert await stored(served, "T") == await stored(served, HALF_TOPIC) == []


async def test_a_delayed_retry_of_an_old_client_is_no_half_message(tmp_path: Path) -> None:
    async with quiet(tmp_path, messageDelayLevel="1s") as served:
        retry = replace(message("%RETRY%G", properties=PREPARED + "DELAY\x011\x02"), reconsume_times=1)
        assert (await served.ask(retry.to_command())).code == 0
        assert await stored(served, HALF_TOPIC) == []
        assert len(await stored(served, "SCHEDULE_TOPIC_XXXX")) == 1


async def test_a_dead_letter_with_delay_zero_is_sent_again_in_a_transaction(tmp_path: Path) -> None:
    async with quiet(tmp_path) as served:
        sent = replace(message("T", properties=PREPARED + "DELAY\x010\x02", queue_id=2), sys_flag=4)
        half = MessageStored.from_command(await served.ask(sent.to_command()))
        assert await stored(served, "T", 2) == []
        assert (await served.ask(end(half, COMMIT))).code == 0
        assert len(await stored(served, "T", 2)) == 1


async def test_a_half_message_is_resumed_by_its_place(tmp_path: Path) -> None:
    async with quiet(tmp_path) as served:
        half = await prepare(served)
        assert (await served.ask(ResumeCheckHalfMessage(half.msg_ids, "T").to_command())).code == 0
        _, anew = await stored(served, HALF_TOPIC)
        assert decode_properties(anew.properties)["TRANSACTION_CHECK_TIMES"] == "0"
        plain = MessageStored.from_command(await served.send("T"))
        for wrong in (plain.msg_ids, "U1", None):
            answer = await served.ask(ResumeCheckHalfMessage(wrong, "T").to_command())
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        assert len(await stored(served, HALF_TOPIC)) == 2


async def test_half_messages_without_an_end_are_counted_by_topic(tmp_path: Path) -> None:
    checked = {"transactionCheckInterval": "20", "transactionTimeOut": "1", "fileReservedTime": "100000"}
    async with quiet(tmp_path) as served:
        waiting = served.running.broker.deliveries.transactions.waiting_by_topic
        halves = [await prepare(served, topic=topic) for topic in ("T", "T", "T", "U")]
        assert waiting == {"T": 3, "U": 1}
        for half, state in ((halves[0], COMMIT), (halves[0], COMMIT), (halves[1], ROLLBACK)):
            assert (await served.ask(end(half, state))).code == 0
        assert waiting == {"T": 1, "U": 1}
    async with quiet(tmp_path) as served:
        transactions = served.running.broker.deliveries.transactions
        await until(lambda: transactions.waiting_by_topic == {"T": 1, "U": 1})
        place = halves[3].msg_ids
    async with serving(tmp_path, **checked, transactionCheckMax="1000") as served:  # stored again
        broker = served.running.broker
        await produce(served)
        await until(lambda: broker.store.reader.bounds((HALF_TOPIC, 0))[1] > 8)
        assert broker.deliveries.transactions.waiting_by_topic == {"T": 1, "U": 1}
    async with serving(tmp_path, **checked, transactionCheckMax="2") as served:  # discarded in the end
        await produce(served)
        waiting = served.running.broker.deliveries.transactions.waiting_by_topic
        await until(lambda: waiting == {"T": 0, "U": 0})
    async with quiet(tmp_path) as served:
        transactions = served.running.broker.deliveries.transactions
        assert (await served.ask(ResumeCheckHalfMessage(place, "T").to_command())).code == 0
        assert transactions.waiting_by_topic == {"U": 1}


async def test_only_checks_that_reach_a_producer_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The half messages wait where they are, however often their check is due, and one line says for which group."""
    async with quiet(tmp_path, transactionCheckMax="2", fileReservedTime="100000") as served:
        broker, checks = served.running.broker, list[CheckTransactionState]()
        for body in (b"first", b"second"):
            await prepare(served, body)
        for number in range(20):
            await broker.deliveries.transactions.check(clock.now_ms() + number + 1, no_topic)
        assert broker.store.reader.bounds((HALF_TOPIC, 0))[1] == 2
        waits = [record.getMessage() for record in caplog.records if "wait for a producer" in record.getMessage()]
        assert len(waits) == 1
        assert waits[0].startswith("2 transactions wait for a producer of group P: ")

        def hear(request: Command, _: Peer) -> None:
            checks.append(CheckTransactionState.from_command(request))

        producer = await produce(served, hear)
        await broker.deliveries.transactions.check(clock.now_ms() + 21, no_topic)
        await until(lambda: len(checks) == 2)
        for check in checks:
            half = check.message()
            assert half.properties["TRANSACTION_CHECK_TIMES"] == "1"
            ended = EndTransaction("P", check.tran_state_table_offset, check.commit_log_offset, COMMIT, True, "U1")
            assert (await producer.ask(ended.to_command())).code == 0
        assert {record.body for record in await stored(served, "T", 2)} == {b"first", b"second"}
