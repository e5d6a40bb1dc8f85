"""Trace records read back: ours, Java's, those of older releases, and garbage."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.messages.properties import MessageType
from pyrmq_core.protocol.messages.trace import (
    consumption_began,
    consumption_ended,
    published,
    recalled,
    transaction_ended,
)
from pyrmq_core.protocol.messages.trace_events import TraceEvent, trace_events
from tests.support import golden

PUB = ("Pub", "5", "R", "G", "T", "M", "tag", "k1 k2", "127.0.0.1:10911", "7", "3", "0")


def record(*fields: str) -> str:
    return "\x01".join(fields) + "\x02"


def test_every_record_that_is_written_is_read() -> None:
    where: dict[str, Any] = {"region_id": "R", "group": "G", "topic": "T", "msg_id": "M", "tags": None, "keys": "k"}
    texts = (
        published(
            timestamp_ms=1,
            **where,
            store_host="h:1",
            body_length=2,
            cost_ms=3,
            message_type=MessageType.DELAY,
            offset_msg_id="O",
            success=True,
        ).text,
        transaction_ended(
            timestamp_ms=2, **where, store_host="h:1", transaction_id="X", state="COMMIT_MESSAGE", from_check=True
        ).text,
        recalled(timestamp_ms=3, region_id="R", group="G", topic="T", msg_id="M", success=False).text,
        consumption_began(
            timestamp_ms=4, region_id="R", group="C", request_id="Q", msg_id="M", retry_times=1, keys=None
        ).text,
        consumption_ended(
            request_id="Q", msg_id="M", cost_ms=9, success=False, keys="k", context_code=4, timestamp_ms=5, group="C"
        ).text,
    )
    sent: dict[str, Any] = {"region_id": "R", "group": "G", "topic": "T", "keys": "k", "store_host": "h:1"}
    assert list(trace_events("".join(texts))) == [
        TraceEvent(
            "Pub",
            "M",
            1,
            **sent,
            body_length=2,
            cost_ms=3,
            message_type=MessageType.DELAY,
            offset_msg_id="O",
            success=True,
        ),
        TraceEvent(
            "EndTransaction",
            "M",
            2,
            **sent,
            message_type=MessageType.TRANSACTION_COMMIT,
            transaction_id="X",
            state="COMMIT_MESSAGE",
            from_check=True,
        ),
        TraceEvent("Recall", "M", 3, region_id="R", group="G", topic="T", success=False),
        TraceEvent("SubBefore", "M", 4, region_id="R", group="C", request_id="Q", retry_times=1),
        TraceEvent("SubAfter", "M", 5, group="C", keys="k", cost_ms=9, success=False, request_id="Q", context_code=4),
    ]


def test_the_traces_of_javas_consumers_are_read() -> None:
    for version in ("4.9.7", "5.4.0"):
        traces = json.loads((golden.DIRECTORY / f"consumer_trace_{version}.json").read_text())
        events = [event for text, *_ in traces["traces"] for event in trace_events(text)]
        before = [traced for traced in events if traced.kind == "SubBefore"]
        assert sorted((traced.msg_id, traced.retry_times, traced.keys or "null") for traced in before) == sorted(
            (msg_id, tries, keys) for msg_id, tries, keys, _ in traces["consumed"]
        )
        assert {traced.request_id for traced in events if traced.kind == "SubAfter"} == {
            traced.request_id for traced in before
        }
        assert len(events) == 2 * len(before)


def test_records_of_other_releases_are_read() -> None:
    (old,) = trace_events(record(*PUB, "true"))
    assert (old.success, old.offset_msg_id) == (True, None)
    (new,) = trace_events(record(*PUB, "O", "false", "127.0.0.1:5000"))
    assert (new.success, new.offset_msg_id) == (False, "O")
    (hosted,) = trace_events(record("SubAfter", "Q", "M", "9", "true", "k", "0"))
    assert (hosted.context_code, hosted.timestamp_ms, hosted.group) == (0, None, None)


def test_a_record_that_cannot_be_read_hides_no_other() -> None:
    good = record(*PUB, "O", "true")
    wrong = [
        record(*PUB),
        record("Pub", "many", *PUB[2:], "O", "true"),
        record(*PUB[:11], "99", "O", "true"),
        record("Later", "1"),
        record("SubBefore", "1", "R", "G", "Q", "null", "0", "k"),
        "",
        "\x01",
    ]
    assert [event.msg_id for event in trace_events(good + "\x02".join(wrong) + "\x02" + good)] == ["M", "M"]


@given(st.text(alphabet="PubSAfter\x01\x02 0123456789null", max_size=200))
def test_garbage_is_passed_over(text: str) -> None:
    for event in trace_events(text):
        assert event.kind
