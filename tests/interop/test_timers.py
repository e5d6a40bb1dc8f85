"""Timer messages: the same answers and deliveries from our broker and 5.4.0's, and one store that both open in turn."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from tests.interop.test_store_files import OPENED, ours
from tests.support.apache import ask, boot_broker, boot_cluster
from tests.support.jvm import POLL_SECONDS
from tests.support.maven import ApacheUnavailable

WAIT_SECONDS = 60
SETTINGS = {"recallMessageEnable": "true", "timerFlushIntervalMs": "500"}
WHEEL = "rmq_sys_wheel_timer"
# What a broker that delivers adds, and what differs from run to run.
TIMES = {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}


def send(address: str, topic: str, body: bytes, properties: str) -> Command:
    born_ms = time.time_ns() // 1_000_000
    message = SendMessage("P", topic, "TBW102", 1, 0, 0, born_ms, 7, properties, body=body)
    return ask(address, message.to_command())


def sent(address: str, topic: str, name: str, delay_ms: int) -> MessageStored:
    answer = send(address, topic, name.encode(), f"UNIQ_KEY\x01{name}\x02TIMER_DELAY_MS\x01{delay_ms}\x02")
    assert answer.code == 0, answer.remark
    return MessageStored.from_command(answer)


def pulled(address: str, topic: str, offset: int, wait_ms: int = 0) -> list[StoredRecord]:
    flags = int(PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait_ms else 0))
    pull = PullMessage("G", topic, 0, offset, 32, flags, suspend_timeout_ms=wait_ms)
    answer = PullAnswer.from_command(ask(address, pull.to_command(), timeout=30))
    return list(iterate_records(answer.records, check_crc=True)) if answer.code == 0 else []


def arrived(address: str, topic: str, count: int) -> list[StoredRecord]:
    """Returns the first messages of a topic; waits for them."""
    deadline = time.monotonic() + WAIT_SECONDS
    records: list[StoredRecord] = []
    while len(records) < count:
        assert time.monotonic() < deadline, [record.body for record in records]
        records += pulled(address, topic, len(records), 2000)
    return records


def wheel(address: str) -> list[StoredRecord]:
    """Returns all messages that wait, or waited."""
    records: list[StoredRecord] = []
    while page := pulled(address, WHEEL, len(records)):
        records += page
    return records


# --- The same answers


SENDS = (
    ("TIMER_DELAY_SEC\x013600\x02", 0, True, None),
    ("TIMER_DELAY_MS\x01100\x02TIMER_DELAY_SEC\x013600\x02", 0, True, None),
    ("TIMER_DELIVER_MS\x01{in_an_hour}\x02", 0, True, None),
    ("TIMER_DELIVER_MS\x015\x02", 0, False, None),
    ("TIMER_DELAY_MS\x01-5\x02", 0, False, None),
    ("TIMER_DELAY_MS\x015000\x02TIMER_OUT_MS\x0117\x02", 0, False, None),
    ("TIMER_DELAY_MS\x015000\x02DELAY\x0118\x02", 0, False, None),
    ("TIMER_DELAY_SEC\x01259201\x02", 13, False, "timer message illegal, the delay time should not be bigger"),
    ("TIMER_DELAY_SEC\x01x\x02", 13, False, "timer message illegal, the delay time should not be bigger"),
    ("TIMER_DELIVER_MS\x01\x02", 0, False, None),
    ("TIMER_DELIVER_MS\x015\x02TIMER_DEL_UNIQKEY\x01A\x02", 13, False, "or if set del msg, the delay time should"),
)


def check_sends(address: str) -> None:
    hour = str(time.time_ns() // 1_000_000 + 3_600_000)
    for properties, code, is_timer, remark in SENDS:
        answer = send(address, "Asked", b"x", "UNIQ_KEY\x01A\x02" + properties.format(in_an_hour=hour))
        assert answer.code == code, (properties, answer.remark)
        assert (remark or "") in (answer.remark or "")
        assert ("recallHandle" in answer.ext) is is_timer, properties
        if is_timer:
            handle = RecallHandle.decode(answer.ext["recallHandle"])
            assert (handle.topic, handle.broker_name, handle.unique_id) == ("Asked", "broker-a", "A")
            assert handle.deliver_ms % 1000 == 1


def check_delivery(address: str, topic: str) -> int:
    """Checks that a message is delivered as it was sent, and that one taken back is not; returns the last slot."""
    began_ms = time.time_ns() // 1_000_000
    gone = sent(address, topic, "gone", 8000)
    sent(address, topic, "first", 2500)
    sent(address, topic, "last", 8500)
    sent_ms = time.time_ns() // 1_000_000
    answer = ask(address, RecallMessage("P", topic, gone.recall_handle or "", None).to_command())
    assert (answer.code, MessageRecalled.from_command(answer).msg_id) == (0, "gone")
    records = arrived(address, topic, 2)
    assert [record.body for record in records] == [b"first", b"last"]
    for record, delay_ms in zip(records, (2500, 8500), strict=True):
        assert delay_ms <= record.store_timestamp_ms - began_ms
        properties = decode_properties(record.properties)
        slot_ms = int(properties["TIMER_OUT_MS"])
        assert slot_ms % 1000 == 0
        assert began_ms - 1000 <= slot_ms - delay_ms <= sent_ms
        assert {name: value for name, value in properties.items() if name not in TIMES} == {
            "UNIQ_KEY": record.body.decode(),
            "TIMER_DELAY_MS": str(delay_ms),
            "REAL_TOPIC": topic,
            "REAL_QID": "0",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        assert properties.keys() >= TIMES
        assert (record.flag, record.reconsume_times, record.sys_flag) == (7, 0, 0)
    waiting = [decode_properties(record.properties) for record in wheel(address)]
    waiting = [timer for timer in waiting if timer["REAL_TOPIC"] == topic and timer["UNIQ_KEY"] == "gone"]
    recalls = [timer for timer in waiting if "TIMER_DEL_UNIQKEY" in timer]
    assert [(timer["TAGS"], timer["TIMER_DEL_UNIQKEY"], timer["UNIQ_KEY"]) for timer in recalls] == [
        ("_RECALL_TAG_", "gone", "gone")
    ]
    assert len(waiting) == 2
    assert waiting[0]["TIMER_OUT_MS"] == waiting[1]["TIMER_OUT_MS"]
    return slot_ms


RECALLS = (
    ("Asked", "zzz", 604, "recall handle is invalid"),
    ("Asked", "", 604, "recall handle is invalid"),
    ("Missing", RecallHandle("Missing", "broker-a", 1, "A").encode(), 17, "the topic[Missing] not exist"),
    ("Asked", RecallHandle("Other", "broker-a", 1, "A").encode(), 604, "topic not match"),
    ("Asked", RecallHandle("Asked", "other", 1, "A").encode(), 604, "broker service not available"),
    ("Asked", RecallHandle("Asked", "broker-a", 1, "A").encode(), 604, "timestamp invalid"),
)


def check_recalls(address: str) -> None:
    for topic, handle, code, remark in RECALLS:
        answer = ask(address, RecallMessage("P", topic, handle, None).to_command())
        assert answer.code == code
        assert remark in (answer.remark or "")


# --- One store


def wait_for_checkpoint(directory: Path, slot_ms: int) -> None:
    """Returns when the checkpoint says that a slot is delivered."""
    deadline = time.monotonic() + WAIT_SECONDS
    file = directory / "config" / "timercheck"
    while True:
        saved = TimerCheckpoint.decode(file.read_bytes()) if file.exists() else None
        if saved is not None and saved.read_ms > slot_ms:
            return
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


@pytest.mark.timeout(360)
@pytest.mark.parametrize("kill", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["killed", "stopped"])
def test_both_brokers_answer_and_deliver_alike_and_deliver_what_the_other_kept(kill: bool) -> None:
    """Ours, Apache's, ours on one store: each message comes once."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster("5.4.0", ()))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ 5.4.0: {reason}")
        directory = cluster.home / "store"
        with ours(directory, kill=kill, **SETTINGS) as address:
            check_sends(address)
            check_recalls(address)
            send_some(address, "ours", {"soon": 1200, "java": 20_000, "late": 36_000, "gone": 21_000})
            # 5.4.0 repeats what was delivered after the checkpoint.
            wait_for_checkpoint(directory, check_delivery(address, "DeliveredHere"))
            here = {record.body.decode() for record in pulled(address, "Swapped", 0)}
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog")}
        boots = boot_broker("5.4.0", cluster.nameserver.address, settings=SETTINGS | places, java_options=OPENED)
        with boots as broker:
            check_sends(broker.address)
            check_recalls(broker.address)
            send_some(broker.address, "java", {"soon": 1000, "late": 16_000, "gone": 15_000})
            check_delivery(broker.address, "DeliveredThere")
            arrived(broker.address, "Swapped", 3)
            if not kill:
                broker.terminate()
        with ours(directory, kill=False, **SETTINGS) as address:
            sent(address, "Swapped", "end", 1000)
            bodies = [record.body.decode() for record in arrived(address, "Swapped", 6)]
            while not {"end", "java-late", "ours-late"} <= set(bodies):  # others came twice
                bodies = [record.body.decode() for record in arrived(address, "Swapped", len(bodies) + 1)]
            assert [len(arrived(address, topic, 2)) for topic in ("DeliveredHere", "DeliveredThere")] == [2, 2]
    assert sorted(set(bodies)) == ["end", "java-late", "java-soon", "ours-java", "ours-late", "ours-soon"]
    # On a slow machine others came before the kill, and after the checkpoint.
    assert {name for name in bodies if bodies.count(name) > 1} <= here - {"ours-soon"}


def send_some(address: str, name: str, delays_ms: Mapping[str, int]) -> None:
    """Sends timer messages, and takes back the last one."""
    for what, delay_ms in delays_ms.items():
        handle = sent(address, "Swapped", f"{name}-{what}", delay_ms).recall_handle
    answer = ask(address, RecallMessage("P", "Swapped", handle or "", None).to_command())
    assert answer.code == 0, answer.remark
