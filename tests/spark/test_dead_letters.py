"""onRejected=deadLetter: each refused row, and no other, is stored with topic, code and reason; the rest is written."""

import pyarrow as pa
import pytest

from pyrmq_core import MessageExt
from pyrmq_core.blocking import EmbeddedCluster, PullConsumer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.write_task import PartitionWrite
from pyrmq_spark.write.writers import summary_line
from tests.support.sink import BODY, bodies, cluster, stored, task
from tests.support.spark import wait_readable

__all__ = ["cluster"]

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def refuse_what_holds(cluster: EmbeddedCluster, word: bytes, code: int = ResponseCode.MESSAGE_ILLEGAL) -> None:
    """Makes brokers refuse sends with `word` in their body, except dead letters, which carry the refusal's code."""

    async def look(request: Command, peer: Peer) -> Command | Pass:
        held = word in bytes(request.body or b"") and "refusedCode" not in str(request.ext)
        return refusal(code, f"no {word.decode()}\x01 here") if held else PASS

    for send in SENDS:
        cluster.control(send, look)


def rows_with(poison: set[int], count: int = 1000) -> pa.RecordBatch:
    texts = [f"{'poison' if number in poison else 'row'} {number}" for number in range(count)]
    return pa.record_batch({"body": pa.array([text.encode() for text in texts])})


def dead_task(cluster: EmbeddedCluster, schema: SinkSchema = BODY, **options: str) -> PartitionWrite:
    return task(cluster, 0, 0, schema, "q", 0, onRejected="deadLetter", deadLetterTopic="refused", **options)


def dead_letters(cluster: EmbeddedCluster) -> list[MessageExt]:
    with PullConsumer("dead", nameserver=cluster.nameserver) as consumer:
        letters: list[MessageExt] = []
        for queue, bounds in consumer.offset_bounds(consumer.message_queues("refused")).items():
            letters += consumer.pull(queue, bounds.start).messages if bounds.end > bounds.start else ()
        return letters


def test_refused_rows_are_stored_apart_and_the_others_keep_their_order(cluster: EmbeddedCluster) -> None:
    refuse_what_holds(cluster, b"poison")
    written = dead_task(cluster, maxBatchBytes="10000").run(iter([rows_with({0, 401, 402, 999})]))
    assert (written.rows, written.dead_lettered, written.retries) == (1000, 4, 0)
    assert "4 of the rows refused, and stored as dead letters" in summary_line([written])
    wait_readable(cluster.nameserver, "orders", 996)
    wait_readable(cluster.nameserver, "refused", 4)
    (in_order,) = stored(cluster).values()
    assert in_order == [f"row {number}" for number in range(1000) if number not in {0, 401, 402, 999}]
    dead = dead_letters(cluster)
    assert sorted(message.body for message in dead) == [b"poison 0", b"poison 401", b"poison 402", b"poison 999"]
    assert {message.properties["refusedTopic"] for message in dead} == {"orders"}
    assert {message.properties["refusedCode"] for message in dead} == {"13"}
    assert all("no poison here" in message.properties["refusedReason"] for message in dead)


def test_without_the_option_a_refused_row_fails_the_write(cluster: EmbeddedCluster) -> None:
    refuse_what_holds(cluster, b"poison")
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_SEND_FAILED\] .*no poison"):
        task(cluster).run(iter([rows_with({5})]))


@pytest.mark.parametrize("code", ["SYSTEM_ERROR", "SERVICE_NOT_AVAILABLE", "SYSTEM_BUSY"])
def test_nothing_else_is_a_dead_letter(cluster: EmbeddedCluster, code: str) -> None:
    refuse_what_holds(cluster, b"poison", ResponseCode[code])
    with pytest.raises(RocketMQSparkError, match="RMQ_SEND_FAILED"):
        dead_task(cluster, sendTimeoutMs="2000").run(iter([rows_with({5}, 10)]))
    with pytest.raises(AssertionError, match="refused has"):
        wait_readable(cluster.nameserver, "refused", 1, seconds=0.2)


def test_a_broker_that_is_gone_makes_no_dead_letters(cluster: EmbeddedCluster) -> None:
    for name in list(cluster.brokers):
        cluster.kill(name)
    with pytest.raises(RocketMQSparkError):
        dead_task(cluster, sendTimeoutMs="1000", requestTimeoutMs="300").run(iter([bodies(0, 10)]))


@pytest.mark.parametrize("size", [32_000, 32_300, 32_480])
def test_a_row_whose_properties_leave_little_room_is_a_dead_letter_with_less_of_the_reason(
    cluster: EmbeddedCluster, size: int
) -> None:
    refuse_what_holds(cluster, b"poison" + b"-" * 600)
    rows = bodies(0, 2).append_column("keys", pa.array(["k", "k" * size]))
    rows = rows.set_column(0, "body", pa.array([b"row", b"poison" + b"-" * 600]))
    schema = SinkSchema({"body": 0, "keys": 1}, "orders")
    assert dead_task(cluster, schema).run(iter([rows])).dead_lettered == 1
    wait_readable(cluster.nameserver, "refused", 1)
    (dead,) = dead_letters(cluster)
    properties = dict(dead.properties)
    assert (len(properties["KEYS"]), properties["refusedCode"], properties["refusedTopic"]) == (size, "13", "orders")
    assert 1 <= len(properties["refusedReason"]) <= 500
    assert "broker-a".startswith(properties["refusedReason"][:7])


def test_a_dead_letter_that_is_refused_fails_the_write(cluster: EmbeddedCluster) -> None:
    async def refuse(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "nothing at all")

    for send in SENDS:
        cluster.control(send, refuse)
    with pytest.raises(RocketMQSparkError, match=r"nothing at all.*\(0 rows of this partition were acknowledged"):
        dead_task(cluster).run(iter([bodies(0, 3)]))
