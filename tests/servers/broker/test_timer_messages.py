"""Timer messages over the wire: their answers, their delivery, recall, and a broker that ends meanwhile."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.servers.broker import RunningBroker
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC
from pyrmq_core.servers.embedded.forgetful_files import cut_power
from tests.servers.broker.serving import Served, message, serving, until

RECALL = {"recallMessageEnable": "true"}


def timer(delay_ms: int, name: str = "A") -> str:
    return f"UNIQ_KEY\x01{name}\x02TIMER_DELAY_MS\x01{delay_ms}\x02"


async def send(served: Served, topic: str, body: bytes, properties: str) -> MessageStored:
    return MessageStored.from_command(await served.send(topic, body, properties))


async def pulled(served: Served, topic: str, offset: int = 0) -> list[StoredRecord]:
    """Returns the messages from an offset on; waits for the first one."""
    answer = await served.pull(topic, 0, offset, wait_ms=15_000)
    return list(iterate_records(answer.records, check_crc=True))


async def end(served: Served, topic: str) -> int:
    return OffsetFound.from_command(await served.ask(GetMaxOffset(topic, 0).to_command())).offset


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_timer_message_comes_at_its_time_as_it_was(tmp_path: Path, flush: str) -> None:
    async with serving(tmp_path, flushDiskType=flush) as served:
        began_ms = time.time_ns() // 1_000_000
        stored = await send(served, "T", b"later", timer(2500) + "TAGS\x01a\x02")
        assert stored.recall_handle is not None
        handle = RecallHandle.decode(stored.recall_handle)
        assert (handle.topic, handle.broker_name, handle.unique_id) == ("T", "broker-a", "A")
        assert (await end(served, "T"), await end(served, TIMER_TOPIC)) == (0, 1)
        (waiting,) = await pulled(served, TIMER_TOPIC)
        host, port = served.running.address.split(":")
        assert stored.msg_ids == offset_msg_id(bytes(map(int, host.split("."))), int(port), waiting.commit_log_offset)
        (record,) = await pulled(served, "T")
        assert record.store_timestamp_ms >= began_ms + 2500
        assert (record.body, record.topic, record.queue_id) == (b"later", "T", 0)
        properties, before = decode_properties(record.properties), decode_properties(waiting.properties)
        assert {name: properties[name] for name in before} == before
        assert set(properties) - set(before) == {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
        assert int(before["TIMER_OUT_MS"]) == handle.deliver_ms - 1
        assert int(before["TIMER_OUT_MS"]) % 1000 == 0


async def test_a_time_in_the_past_is_stored_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stored = await send(served, "T", b"x", "TIMER_DELIVER_MS\x011\x02")
        assert stored.recall_handle is None
        assert (await end(served, "T"), await end(served, TIMER_TOPIC)) == (1, 0)


async def test_a_level_wins_over_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stored = await send(served, "T", b"x", timer(5000) + "DELAY\x0118\x02")
        assert stored.recall_handle is None
        answer = await served.pull("SCHEDULE_TOPIC_XXXX", 17)
        (record,) = iterate_records(answer.records)
        assert not any(name.startswith("TIMER") for name in decode_properties(record.properties))


async def test_a_message_that_was_a_timer_is_sent_again_at_once(tmp_path: Path) -> None:
    """A consumer's retry, or a copy that a consumer sends on, has the properties of the delivered message."""
    async with serving(tmp_path) as served:
        await send(served, "T", b"x", timer(100))
        (record,) = await pulled(served, "T")
        await send(served, "U", b"again", record.properties)
        assert await end(served, "U") == 1
        back = ConsumerSendMsgBack(record.commit_log_offset, "G", 1)
        assert (await served.ask(back.to_command())).code == 0
        assert [again.body for again in await pulled(served, "%RETRY%G")] == [b"x"]


async def test_refusals(tmp_path: Path) -> None:
    far = f"TIMER_DELIVER_MS\x01{time.time_ns() // 1_000_000 + 4 * 86_400_000}\x02"
    items = encode_batch_body([BatchItem(0, b"1", b"")])
    async with serving(tmp_path, timerMaxDelaySec="300000") as served:
        answer = await served.send("T", b"x", far)
        assert answer.code == 13
        assert (answer.remark or "").startswith("timer message illegal, the delay time should not be bigger than the ")
        assert "max delay 300000000ms" in (answer.remark or "")
        batch = replace(message("T", items, timer(10)), batch=True)
        assert (await served.ask(batch.to_command())).code == 13
        assert (await served.send("T", b"x", timer(10) + "own\x01" + "y" * 32_560 + "\x02")).code == 13
        stray = await served.send(TIMER_TOPIC, b"x")
        assert (stray.code, stray.remark) == (16, f"Sending message to topic[{TIMER_TOPIC}] is forbidden.")
        assert (await end(served, "T"), await end(served, TIMER_TOPIC)) == (0, 0)


async def test_without_the_wheel_timers_are_refused_and_those_that_wait_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served:
        await send(served, "T", b"waits", timer(60_000))
    with caplog.at_level(logging.WARNING):
        async with serving(tmp_path, timerWheelEnable="false") as served:
            answer = await served.send("T", b"x", timer(10))
            assert answer.code == 1
            assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"
    assert "rmq_sys_wheel_timer has 1 messages, and timerWheelEnable is false" in caplog.text


@pytest.mark.parametrize("ending", ["kill", "power_cut", "stop"])
async def test_timers_survive_the_end_of_the_broker(tmp_path: Path, ending: str) -> None:
    sync = {"flushDiskType": "SYNC_FLUSH"}
    async with serving(tmp_path, **sync) as served:
        for number in range(20):
            await send(served, "T", b"%d" % number, timer(600 + 100 * number, str(number)))
        await pulled(served, "T")
        {"stop": RunningBroker.stop, "kill": RunningBroker.kill, "power_cut": cut_power}[ending](served.running)
        await served.ended.wait()
    async with serving(tmp_path, **sync) as served:
        deliveries: list[bytes] = []
        while len(deliveries) < 20:
            deliveries += [record.body for record in await pulled(served, "T", len(deliveries))]
        assert deliveries == [b"%d" % number for number in range(20)]
        assert await end(served, TIMER_TOPIC) == 20


async def test_a_stop_writes_the_checkpoint(tmp_path: Path) -> None:
    """Then no other broker reads again what this one had read."""
    async with serving(tmp_path, timerFlushIntervalMs="600000") as served:
        await send(served, "T", b"waits", timer(60_000))
        await until(lambda: served.running.broker.deliveries.timers.messages.queue_offset == 1)
    saved = TimerCheckpoint.decode((tmp_path / "config" / "timercheck").read_bytes())
    assert saved is not None
    assert (saved.queue_offset, saved.log_position) == (1, 52)


async def test_a_recall(tmp_path: Path) -> None:
    async with serving(tmp_path, **RECALL) as served:
        gone = await send(served, "T", b"gone", timer(5000, "A"))
        await send(served, "T", b"stays", timer(5100, "B"))
        answer = await recall(served, "T", gone.recall_handle or "")
        assert MessageRecalled.from_command(answer).msg_id == "A"
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path, **RECALL) as served:
        assert [record.body for record in await pulled(served, "T")] == [b"stays"]
        answer = await recall(served, "T", gone.recall_handle or "")
        assert (answer.code, answer.remark) == (604, "recall failed, timestamp invalid")


async def recall(served: Served, topic: str, text: str) -> Command:
    return await served.ask(RecallMessage("P", topic, text, None).to_command())


def handle(topic: str = "T", broker: str = "broker-a", ahead_ms: int = 5000) -> str:
    return RecallHandle(topic, broker, time.time_ns() // 1_000_000 + ahead_ms, "A").encode()


async def test_recalls_that_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "off") as served:
        await served.send("T")
        assert (await recall(served, "T", handle())).code == 16
    async with serving(tmp_path / "on", **RECALL) as served:
        await served.send("T")
        for topic, text, code, remark in (
            ("T", "zzz", 604, "recall handle is invalid"),
            ("No", handle("No"), 17, "recall failed, the topic[No] not exist"),
            ("T", handle("U"), 604, "recall failed, topic not match"),
            ("T", handle(broker="other"), 604, "recall failed, broker service not available"),
            ("T", handle(ahead_ms=-1), 604, "recall failed, timestamp invalid"),
            ("T", handle(ahead_ms=259_200_000 + 60_000), 604, "recall failed, timestamp invalid"),
        ):
            answer = await recall(served, topic, text)
            assert (answer.code, answer.remark) == (code, remark)
        assert await end(served, TIMER_TOPIC) == 0
