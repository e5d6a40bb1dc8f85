"""The requests of consumers that pop: both ways, garbage, and what Java's client and a broker of 5.4.0 wrote."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.pop.assignments import (
    Assignments,
    QueryAssignment,
    QueueAssignment,
    RequestMode,
    SetRequestMode,
)
from pyrmq_core.protocol.requests.pop.lite import (
    LiteAction,
    LiteChange,
    LiteStart,
    LiteSubscriptionCtl,
    NotifyUnsubscribeLite,
    PopLiteMessage,
    read_lite_tries,
)
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.protocol.requests.pop.pop_message import (
    POP_ANSWERS,
    PopAnswer,
    PopMessage,
    read_order_counts,
    read_start_offsets,
    write_message_offsets,
    write_order_counts,
    write_start_offsets,
)
from pyrmq_core.protocol.requests.pop.receipt import MOST_SPREAD, Receipt, pop_retry_topic, topic_mark
from pyrmq_core.protocol.requests.pop.settle import (
    AckEntry,
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
    ack_entries,
)
from tests.protocol.conversations import assert_garbage_is_named, assert_json_garbage_is_named, assert_survives
from tests.support import golden
from tests.support.wire_forms import read_message_offsets

texts = st.text(min_size=1, max_size=10)
words = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=10)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
starts = st.integers(0, 2**62)
marks = st.sampled_from("012")
JSON = Serialization.JSON


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    start = draw(starts)
    offset = start + draw(st.integers(0, 200))
    return Receipt(start, draw(longs), draw(longs), draw(ints), draw(marks), draw(words), draw(ints), offset)


pops = st.builds(
    PopMessage,
    texts,
    texts,
    ints,
    ints,
    longs,
    longs,
    longs,
    ints,
    st.none() | texts,
    st.none() | texts,
    st.booleans(),
    st.none() | texts,
    st.none() | texts,
)
answers = st.builds(
    PopAnswer,
    code=st.sampled_from(sorted(POP_ANSWERS)),
    remark=st.none() | texts,
    pop_time_ms=longs,
    invisible_ms=longs,
    revive_queue_id=ints,
    rest_num=longs,
    start_offset_info=st.none() | texts,
    msg_offset_info=st.none() | texts,
    order_count_info=st.none() | texts,
    records=st.binary(max_size=10),
)
SAMPLES = (
    PopMessage("G", "T", -1, 32, 60_000, 15_000, 1, 0, "TAG", "*", True, "attempt", "broker-a"),
    PopAnswer(0, None, 1, 2, 3, 4, "0 0 0", "0 0 0,1", "0 qo0%1 1;0 0 0", b"x"),
    AckMessage("G", "T", 1, "0 1 2 3 0 b 4 5", 5, "broker-a", "s"),
    ChangeInvisibleTime("G", "T", 1, "0 1 2 3 0 b 4 5", 5, 60_000, "broker-a", "s"),
    PopLiteMessage("c", "G", "T", 32, 60_000, 15_000, 1, "attempt", "broker-a"),
    NotifyUnsubscribeLite("s", "G", "c"),
    InvisibleTimeChanged(1, 2, 3),
    AwaitMessage("G", "T", -1, 15_000, 1, True, "attempt", "broker-a"),
    MessageAwaited(True, False),
    GetPollingInfo("G", "T", -1, "broker-a"),
    PollingInfo(3),
)
BODIES = (
    BatchAckMessage("broker-a", ack_entries("T", "G", [Receipt(5, 1, 2, 3, "1", "broker-a", 4, 5)])),
    QueryAssignment("T", "G", "client", "AVG", "CLUSTERING"),
    Assignments((QueueAssignment(MessageQueue("T", "broker-a", -1), RequestMode.POP),)),
    SetRequestMode("T", "G", RequestMode.POP, 8),
    LiteSubscriptionCtl((LiteChange(LiteAction.PARTIAL_ADD, "c", "G", "T", ("s", "t"), LiteStart("OFFSET", 5)),)),
)


@given(pops | answers)
def test_a_pop_and_its_answer_survive_the_wire(said: PopMessage | PopAnswer) -> None:
    assert_survives(said, JSON)


@pytest.mark.parametrize("sample", [*SAMPLES, *BODIES], ids=lambda sample: type(sample).__name__)
def test_every_conversation_survives_the_wire(sample: PopMessage) -> None:
    assert_survives(sample, JSON)


@given(st.data())
def test_garbage_is_named(data: st.DataObject) -> None:
    for sample in SAMPLES:
        assert_garbage_is_named(type(sample), sample, data)
    for body in BODIES:
        assert_garbage_is_named(type(body), body, data)
        command = body.to_command()
        assert_json_garbage_is_named(type(body), command.code, json.loads(bytes(command.body)), data)


@pytest.mark.parametrize("names", ["session", {"session": 1}, [["session"]], [1], 7])
def test_lite_topics_that_are_no_list_of_texts_are_refused(names: object) -> None:
    row = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": "T", "liteTopicSet": names}
    command = Command(LiteSubscriptionCtl.CODE, body=json.dumps({"subscriptionSet": [row]}).encode())
    with pytest.raises(BodyError, match="a member is missing or wrong"):
        LiteSubscriptionCtl.from_command(command)


def test_subscriptions_are_written_as_java_writes_them() -> None:
    """Its members are those of LiteSubscriptionDTO.java and OffsetOption.java, 5.5.0."""
    change = LiteChange(LiteAction.COMPLETE_ADD, "c", "G", "T", ("s",), LiteStart("POLICY", 1))
    assert json.loads(bytes(LiteSubscriptionCtl((change,)).to_command().body)) == {
        "subscriptionSet": [
            {
                "action": "COMPLETE_ADD",
                "clientId": "c",
                "group": "G",
                "topic": "T",
                "liteTopicSet": ["s"],
                "offsetOption": {"type": "POLICY", "value": 1},
            }
        ]
    }


@pytest.mark.parametrize(
    ("text", "tries"),
    [
        ("", [{}, {}]),
        ("0;0;0", [{4: 0, 5: 0}, {4: 0}]),
        ("1;1;2", [{4: 1, 5: 1}, {4: 2}]),
        ("0 qo0%5 3;0 qo0%4 2;1", [{4: 2, 5: 3}, {4: 1}]),  # Java's table has no order
        ("0 qo0%4 2;1", [{4: 2}, {4: 1}]),  # those popped before alone
        ("0 qo0%4 2;0 qo0%4 1", [{4: 2}, {4: 1}]),
        ("1", [{4: 1}, {}]),
    ],
)
def test_tries_are_read_by_lite_topic(text: str, tries: list[dict[int, int]]) -> None:
    assert read_lite_tries(text, [[4, 5], [4]]) == tries


@pytest.mark.parametrize("text", ["x", "1;;1", "0 0 1", "0 qo1%4 1", "-1", "0 qo0%4"])
def test_malformed_tries_are_named(text: str) -> None:
    with pytest.raises(HeaderError, match="orderCountInfo"):
        read_lite_tries(text, [[4]])


@given(receipts())
def test_a_receipt_is_read_as_it_was_written(receipt: Receipt) -> None:
    assert Receipt.decode(receipt.encode()) == receipt


@given(st.text() | st.lists(words | ints.map(str), min_size=6, max_size=9).map(" ".join))
def test_any_receipt_is_read_or_named(text: str) -> None:
    with contextlib.suppress(HeaderError):
        assert Receipt.decode(text) == Receipt.decode(Receipt.decode(text).encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has 1 words instead of 8"),
        ("0 1 2 3 0 broker-a 4", "it has 7 words instead of 8"),
        ("0 1 2 3 0 broker-a 4 5 6", "it has 9 words instead of 8"),
        ("0 1 2 3 3 broker-a 4 5", "its fifth word is '3'"),
        ("0 1 2 3 0  4 5", "it names no broker"),
        ("0 1 2 4294967296 0 broker-a 4 5", "it is beyond 32 bits"),
        ("6 1 2 3 0 broker-a 4 5", "receipt of offset 5 in a pop from 6 on is invalid"),
        (f"0 1 2 3 0 broker-a 4 {MOST_SPREAD}", f"receipt of offset {MOST_SPREAD} in a pop from 0 on is invalid"),
        ("x 1 2 3 0 broker-a 4 5", "invalid literal"),
    ],
)
def test_a_wrong_receipt_is_named(text: str, reason: str) -> None:
    with pytest.raises(HeaderError, match=reason):
        Receipt.decode(text)


@given(st.dictionaries(st.tuples(marks, ints), longs, max_size=4))
def test_first_offsets_are_read_as_they_were_written(table: dict[tuple[str, int], int]) -> None:
    assert read_start_offsets(write_start_offsets(table)) == table


@given(st.dictionaries(st.tuples(marks, ints), st.lists(longs, min_size=1, max_size=4).map(tuple), max_size=4))
def test_offsets_of_messages_are_read_as_they_were_written(table: dict[tuple[str, int], tuple[int, ...]]) -> None:
    assert read_message_offsets(write_message_offsets(table)) == table


@given(st.dictionaries(st.tuples(marks, ints, st.none() | longs), ints, max_size=4))
def test_counts_of_ordered_pops_are_read_as_they_were_written(table: dict[tuple[str, int, int | None], int]) -> None:
    assert read_order_counts(write_order_counts(table)) == table


@given(st.text() | st.text(alphabet="012 ,;qo%", max_size=30))
def test_any_offsets_are_read_or_named(text: str) -> None:
    for read in (read_start_offsets, read_order_counts):
        with contextlib.suppress(HeaderError):
            read(text)


@pytest.mark.parametrize("text", ["0 1 2;0 1 3", "0 1", "3 1 2", "0 1 x", "0 1 2;"])
def test_wrong_offsets_are_named(text: str) -> None:
    for read in (read_start_offsets, read_order_counts):
        with pytest.raises(HeaderError, match="POP_MESSAGE answer"):
            read(text)


@given(st.lists(receipts(), max_size=6))
def test_batch_acknowledgements_name_every_message(popped: list[Receipt]) -> None:
    said = BatchAckMessage("broker-a", ack_entries("T", "G", popped))
    heard = BatchAckMessage.from_command(said.to_command())
    assert heard == said
    listed = {(entry.mark, entry.queue_id, offset) for entry in heard.entries for offset in entry.offsets}
    assert listed == {(receipt.mark, receipt.queue_id, receipt.queue_offset) for receipt in popped}


@pytest.mark.parametrize(
    ("entries", "bits", "words"),
    [
        (2, b"\xff" * 1024, "more than 8192"),
        (8193, b"", "more than 8192"),
        (1, bytes(1 << 20), "bytes are more than"),
    ],
)
def test_a_batch_of_too_much_is_refused(entries: int, bits: bytes, words: str) -> None:
    row = AckEntry("G", "T", "0", 5, 4, 3, 1, 2, ()).to_members() | {"b": base64.b64encode(bits).decode()}
    with pytest.raises(BodyError, match=words):
        BatchAckMessage.from_command(Command(200151, body=json.dumps({"acks": [row] * entries}).encode()))


def test_an_entry_with_too_many_bits_is_refused() -> None:
    body = json.loads(bytes(BODIES[0].to_command().body))
    body["acks"][0]["b"] = "AAAA" * (MOST_SPREAD // 24 + 1)
    with pytest.raises(BodyError, match="bytes of bits are more than 8192"):
        BatchAckMessage.from_command(Command(200151, body=json.dumps(body).encode()))


def test_retry_topics_of_both_forms_have_their_marks() -> None:
    receipt = Receipt.decode("0 1 2 3 1 broker-a 4 5")
    assert receipt.real_topic("Jobs", "workers") == pop_retry_topic("Jobs", "workers", "1") == "%RETRY%workers_Jobs"
    assert topic_mark("%RETRY%workers_Jobs") == "1"
    receipt = Receipt.decode("0 1 2 3 2 broker-a 4 5")
    assert receipt.real_topic("Jobs", "workers") == "%RETRY%workers+Jobs"
    assert topic_mark("%RETRY%workers+Jobs") == "2"
    assert Receipt.decode("0 1 2 999 0 broker-a 4 5").is_ordered
    assert Receipt.decode("0 1 2 3 0 broker-a 4 5").real_topic("Jobs", "workers") == "Jobs"
    assert topic_mark("Jobs") == "0"


def test_recorded_receipts_are_those_of_the_answers_before_them() -> None:
    """Java's client made each receipt from the fields of an answer, and sent it with its acknowledgement."""
    asked = [Receipt.decode(ack.extra_info) for ack in map(AckMessage.from_command, _recorded_requests(200051))]
    expected = set()
    for command in _recorded_answers(200050, 0):
        answer = PopAnswer.from_command(command)
        starts_by_queue = read_start_offsets(answer.start_offset_info or "")
        for (mark, queue), offsets in read_message_offsets(answer.msg_offset_info or "").items():
            for offset in offsets:
                start = starts_by_queue[mark, queue]
                fields = (start, answer.pop_time_ms, answer.invisible_ms, answer.revive_queue_id)
                expected.add(Receipt(*fields, mark, "broker-a", queue, offset))
    beyond = [receipt for receipt in asked if receipt not in expected]
    assert [receipt.queue_offset for receipt in beyond] == [999]  # an acknowledgement that the broker refuses
    assert len(asked) > 4


def test_a_recorded_retry_carries_its_receipt() -> None:
    """The broker names the popped topic in such a record, and the retry topic by the mark of its receipt."""
    popped = [record for command in _recorded_answers(200050, 0) for record in iterate_records(command.body)]
    retries = [record for record in popped if "POP_CK" in decode_properties(record.properties)]
    assert [record.topic for record in retries] == ["Jobs"]
    receipt = Receipt.decode(decode_properties(retries[0].properties)["POP_CK"])
    assert receipt.real_topic("Jobs", "workers") == "%RETRY%workers_Jobs"
    assert receipt.queue_offset == retries[0].queue_offset


def _recorded_requests(code: int) -> list[Command]:
    return [_command(frame.raw) for frame in golden.requests(code)]


def _recorded_answers(code: int, answered: int) -> list[Command]:
    return [_command(frame.raw) for frame in golden.answers(code) if frame.code == answered]


def _command(raw: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(raw)
    command = decoder.next_command()
    assert command is not None
    return command


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([["x"] * 6000, ["y"] * 4001], "10001 lite topics are more than 10000"),
        ([["x" * (1 << 20)]], "more than 1048576 bytes"),
    ],
)
def test_too_many_subscriptions_in_a_request_are_refused(names: list[list[str]], fault: str) -> None:
    changes = [LiteChange(LiteAction.COMPLETE_ADD, "c", "G", "T", tuple(each)) for each in names]
    with pytest.raises(BodyError, match=fault):
        LiteSubscriptionCtl.from_command(LiteSubscriptionCtl(tuple(changes)).to_command())
