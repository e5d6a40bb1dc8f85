"""Trace records as Java prints them."""

from pyrmq_core.protocol.messages.message_type import MessageType
from pyrmq_core.protocol.messages.trace import published, recalled, transaction_ended

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
