"""Trace records as Java prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.model import ConsumeReturnType
from pyrmq_core.protocol.messages.properties import MessageType
from pyrmq_core.protocol.messages.trace import (
    TraceRecord,
    consumption_began,
    consumption_ended,
    published,
    recalled,
    transaction_ended,
)
from tests.support.golden import load

# routing and producer sheet, 6.6, from log_ok_trace.txt
GOLDEN = (
    "Pub\x011795252074994\x01DefaultRegion\x01PG_A\x01TopicTest\x01FD000000000000000000000000000002158F30946E0968F4D1F10000"
    "\x01TagA\x01K1\x01127.0.0.1:24370\x015\x0117\x010\x017F00000100002A9F0000000000001A0C\x01true\x02"
)


def test_javas_record() -> None:
    record = published(
        timestamp_ms=1795252074994,
        region_id="DefaultRegion",
        group="PG_A",
        topic="TopicTest",
        msg_id="FD000000000000000000000000000002158F30946E0968F4D1F10000",
        tags="TagA",
        keys="K1",
        store_host="127.0.0.1:24370",
        body_length=5,
        cost_ms=17,
        message_type=MessageType.NORMAL,
        offset_msg_id="7F00000100002A9F0000000000001A0C",
        success=True,
    )
    assert record.text == GOLDEN
    assert record.keys == ("FD000000000000000000000000000002158F30946E0968F4D1F10000", "K1")


def test_what_is_missing_reads_null() -> None:
    record = published(
        timestamp_ms=1,
        region_id="R",
        group="g",
        topic="t",
        msg_id="",
        tags=None,
        keys=None,
        store_host="h:1",
        body_length=0,
        cost_ms=0,
        message_type=MessageType.DELAY,
        offset_msg_id="o",
        success=False,
    )
    assert record.text == "Pub\x011\x01R\x01g\x01t\x01\x01null\x01null\x01h:1\x010\x010\x013\x01o\x01false\x02"
    assert record.keys == ()


def test_the_end_of_a_transaction() -> None:
    record = transaction_ended(
        timestamp_ms=1,
        region_id="R",
        group="g",
        topic="t",
        msg_id="M",
        tags="a",
        keys="k  l",
        store_host="h:1",
        transaction_id="T",
        state="COMMIT_MESSAGE",
        from_check=True,
    )
    assert record.text == (
        "EndTransaction\x011\x01R\x01g\x01t\x01M\x01a\x01k  l\x01h:1\x012\x01T\x01COMMIT_MESSAGE\x01true\x02"
    )
    assert record.keys == ("M", "k", "l")


def test_a_recall() -> None:
    record = recalled(timestamp_ms=1, region_id="R", group="g", topic="t", msg_id="M", success=True)
    assert record.text == "Recall\x011\x01R\x01g\x01t\x01M\x01true\x02"
    assert record.keys == ("M",)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_javas_consumer_records(version: str) -> None:
    """Each recorded record is made again of its own fields, and of the messages that the program printed."""
    recorded = load(f"consumer_trace_{version}.json")
    messages = {msg_id: (keys, region) for msg_id, _, keys, region in recorded["consumed"]}
    seen = []
    for body, found_by in recorded["traces"]:
        encoded = [_again(record.split("\x01"), messages) for record in body.split("\x02") if record]
        assert "".join(record.text for record in encoded) == body
        assert {key for record in encoded for key in record.keys} == set(found_by.split(" "))
        seen += [record.text.partition("\x01")[0] for record in encoded]
    assert sorted(seen) == ["SubAfter"] * 6 + ["SubBefore"] * 6


def _again(fields: list[str], messages: dict[str, tuple[str, str]]) -> TraceRecord:
    if fields[0] == "SubBefore":
        msg_id = fields[5]
        keys, region = messages[msg_id]
        return consumption_began(
            timestamp_ms=int(fields[1]),
            region_id=None if region == "null" else region,
            group="audit",
            request_id=fields[4],
            msg_id=msg_id,
            retry_times=int(fields[6]),
            keys=None if keys == "null" else keys,
        )
    keys, _ = messages[fields[2]]
    return consumption_ended(
        request_id=fields[1],
        msg_id=fields[2],
        cost_ms=int(fields[3]),
        success=fields[4] == "true",
        keys=None if keys == "null" else keys,
        context_code=ConsumeReturnType(int(fields[6])),
        timestamp_ms=int(fields[7]),
        group="audit",
    )


def test_a_separator_in_a_field_does_not_end_it() -> None:
    record = consumption_began(
        timestamp_ms=1, region_id="R", group="g", request_id="Q", msg_id="M", retry_times=0, keys="a\x01b\x02c"
    )
    assert record.text == "SubBefore\x011\x01R\x01g\x01Q\x01M\x010\x01a b c\x02"


def test_empty_keys_read_null() -> None:
    """Java's reader drops empty fields at the end of a record, and then misses the keys."""
    record = consumption_began(
        timestamp_ms=1, region_id="R", group="g", request_id="Q", msg_id="M", retry_times=0, keys=""
    )
    assert record.text.endswith("\x010\x01null\x02")


FIELD = st.none() | st.text(max_size=20)


@given(FIELD, FIELD, FIELD, FIELD)
def test_a_reader_finds_each_field_whatever_it_holds(
    group: str | None, region: str | None, msg_id: str | None, keys: str | None
) -> None:
    """Java's reader splits at the separators, and drops empty fields at the end."""
    began = consumption_began(
        timestamp_ms=1,
        region_id=region,
        group=group or "",
        request_id="Q",
        msg_id=msg_id or "",
        retry_times=2,
        keys=keys,
    )
    ended = consumption_ended(
        request_id="Q",
        msg_id=msg_id or "",
        cost_ms=3,
        success=True,
        keys=keys,
        context_code=4,
        timestamp_ms=5,
        group=group or "",
    )
    assert began.text.count("\x02") == ended.text.count("\x02") == 1
    fields, after = (record.text.rstrip("\x02").split("\x01") for record in (began, ended))
    assert (len(fields), fields[0], fields[6]) == (8, "SubBefore", "2")
    assert fields[7] != ""
    assert (len(after), after[0], after[3], after[6:8]) == (9, "SubAfter", "3", ["4", "5"])
