"""Entries of the revive log: the bytes that a broker of 5.4.0 wrote, and what cannot be read."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import RawRecord, unpack_record
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.pop.records import Ack, BadEntry, CheckPoint, PopKey, read_entry
from pyrmq_core.servers.broker.pop.revive_log import ReviveLog
from pyrmq_core.servers.broker.store.appending import build
from pyrmq_core.servers.broker.timers.timer_rules import TimerSettings

KEY = PopKey("T", "G", 0, 0, 1795933727946, "broker-a")
NOW_MS = 1795933728054
LOG = ReviveLog("rmq_sys_REVIVE_LOG_DefaultCluster", 8, "broker-a", Identity("127.0.0.1", 10911), TimerSettings())
# Body and properties in rmq_sys_wheel_timer, as 5.4.0 wrote them for the same pop and acknowledgement.
RECORDED: list[tuple[CheckPoint | Ack, bytes, str]] = [
    (
        CheckPoint(KEY, 5000, (0, 1, 2)),
        b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2],"it":5000,"n":3,"pt":1795933727946,"q":0,'
        b'"reviveTime":1795933732946,"ro":0,"so":0,"t":"T"}',
        "REAL_TOPIC\x01rmq_sys_REVIVE_LOG_DefaultCluster\x02TIMER_DELIVER_MS\x011795933731946\x02"
        "UNIQ_KEY\x01T@0@0@G@1795933727946@broker-a@ck\x02TAGS\x01ck\x02TIMER_OUT_MS\x011795933731000\x02"
        "REAL_QID\x010\x02",
    ),
    (
        Ack(KEY, (0,), 1795933732946),
        b'{"ao":0,"bn":"broker-a","c":"G","pt":1795933727946,"q":0,"so":0,"t":"T"}',
        "REAL_TOPIC\x01rmq_sys_REVIVE_LOG_DefaultCluster\x02TIMER_DELIVER_MS\x011795933732946\x02"
        "UNIQ_KEY\x01T@0@0@G@1795933727946@broker-a@ack\x02TAGS\x01ack\x02TIMER_OUT_MS\x011795933732000\x02"
        "REAL_QID\x010\x02",
    ),
]


def record_of(body: bytes, properties: str) -> RawRecord:
    append = LOG.append(RECORDED[0][0], 0, NOW_MS)
    (piece,) = append.pieces
    raw = build(append, 0, 0, NOW_MS).records
    record = unpack_record(raw, 0)
    assert record.body == piece.body
    return record._replace(body=body, properties=properties.encode())


@pytest.mark.parametrize(("entry", "body", "properties"), RECORDED, ids=["checkpoint", "ack"])
def test_entries_are_written_as_java_writes_them(entry: CheckPoint | Ack, body: bytes, properties: str) -> None:
    append = LOG.append(entry, 0, NOW_MS)
    (piece,) = append.pieces
    assert piece.body == body
    assert decode_properties(piece.properties[2:].decode()) == decode_properties(properties)
    assert (append.topic, append.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert read_entry(record_of(body, properties), "broker-a") == (entry, entry.deliver_ms)


def test_an_entry_whose_time_is_over_goes_straight_into_the_log() -> None:
    append = LOG.append(Ack(KEY, (1,), NOW_MS - 1), 3, NOW_MS)
    assert (append.topic, append.queue_id) == (LOG.topic, 3)


def test_a_batch_and_older_forms_are_read() -> None:
    body = b'{"ao":-1,"aol":[4,6],"c":"G","pt":1795933727946,"q":0,"so":0,"t":"T"}'
    batch, _ = read_entry(record_of(body, "TAGS\x01bAck\x02"), "broker-a")
    assert batch == Ack(KEY, (4, 6), 0, "bAck")
    body = b'{"bm":1,"c":"G","it":5000,"n":3,"pt":1795933727946,"q":0,"so":7,"t":"T"}'
    point, _ = read_entry(record_of(body, "TAGS\x01ck\x02"), "broker-a")
    assert point == CheckPoint(KEY._replace(start_offset=7), 5000, (8, 9))  # the first one's bit is set


@pytest.mark.parametrize(
    ("body", "tag"),
    [
        (b"", "ck"),
        (b"[]", "ck"),
        (b"{}", "ack"),
        (b'{"ao":"x","bn":"b","c":"G","pt":1,"q":0,"so":0,"t":"T"}', "ack"),
        (b'{"ao":0,"bn":"b","c":"","pt":1,"q":0,"so":0,"t":"T"}', "ack"),
        (b'{"bn":"b","c":"G","it":1,"n":40,"d":[1],"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
        (b'{"bn":"b","c":"G","it":1,"n":2000000000,"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
        (b'{"ao":0,"bn":"b","c":"G","pt":1,"q":0,"so":0,"t":"T"}', "other"),
    ],
)
def test_what_is_no_entry_is_named(body: bytes, tag: str) -> None:
    with pytest.raises(BadEntry, match=tag):
        read_entry(record_of(body, f"TAGS\x01{tag}\x02"), "broker-a")


@given(st.binary(max_size=80), st.sampled_from(["ck", "ack", "bAck"]), st.text(max_size=20))
def test_any_body_is_an_entry_or_named(body: bytes, tag: str, time: str) -> None:
    with contextlib.suppress(BadEntry):
        read_entry(record_of(body, f"TAGS\x01{tag}\x02TIMER_DELIVER_MS\x01{time}\x02"), "broker-a")
