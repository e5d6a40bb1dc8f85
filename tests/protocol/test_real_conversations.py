"""Every recorded request and answer of the paths to and from a broker, read by our conversations and written again."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, Protocol, Self

import pytest

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.java.json_text import loads
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat, HeartBeatAnswer, UnregisterClient
from pyrmq_core.protocol.requests.broker.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    StoreTimeFound,
)
from pyrmq_core.protocol.requests.broker.pull_message import PULL_ANSWERS, PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.requests.pop.assignments import Assignments, QueryAssignment, SetRequestMode
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.protocol.requests.pop.pop_message import POP_ANSWERS, PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.settle import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
)
from tests.support import golden
from tests.support.wire_forms import send_of_code_10


class Said(Protocol):
    """One side of a conversation."""

    def to_command(self) -> Command: ...

    @classmethod
    def from_command(cls, command: Command) -> Self: ...


REQUESTS: dict[int, type[Said]] = {
    10: SendMessage,
    310: SendMessage,
    320: SendMessage,
    11: PullMessage,
    361: PullMessage,
    14: QueryConsumerOffset,
    15: UpdateConsumerOffset,
    29: SearchOffset,
    30: GetMaxOffset,
    31: GetMinOffset,
    32: GetEarliestStoreTime,
    34: HeartBeat,
    35: UnregisterClient,
    37: EndTransaction,
    39: CheckTransactionState,
    105: GetRouteInfo,
    400: QueryAssignment,
    401: SetRequestMode,
    200050: PopMessage,
    200051: AckMessage,
    200053: ChangeInvisibleTime,
    200054: AwaitMessage,
    200055: GetPollingInfo,
    200151: BatchAckMessage,
}
ANSWERS: dict[int, type[Said]] = {
    10: MessageStored,
    310: MessageStored,
    320: MessageStored,
    11: PullAnswer,
    361: PullAnswer,
    14: OffsetFound,
    29: OffsetFound,
    30: OffsetFound,
    31: OffsetFound,
    32: StoreTimeFound,
    34: HeartBeatAnswer,
    105: RouteInfo,
    400: Assignments,
    200050: PopAnswer,
    200053: InvisibleTimeChanged,
    200054: MessageAwaited,
    200055: PollingInfo,
}
# Answers besides SUCCESS that are no refusals.
OTHER_ANSWERS = {11: PULL_ANSWERS, 200050: POP_ANSWERS}
# Fields and members that later servers add to an answer or body; earlier ones leave them out and mean the same.
ADDED_EXT = {"groupSysFlag": "0", "topicSysFlag": "0"}
ADDED_MEMBERS = {"heartbeatFingerprint": 0, "withoutSub": False, "enableActingMaster": False}


def command_of(frame: golden.GoldenFrame) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame.raw)
    command = decoder.next_command()
    assert command is not None
    return command


def with_added_members(value: Any) -> Any:
    """Returns JSON without the members that only later versions write, with their default."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if ADDED_MEMBERS.get(name, ...) != inner}
        return {name: with_added_members(inner) for name, inner in kept.items()}
    return [with_added_members(inner) for inner in value] if isinstance(value, list) else value


def assert_said_again(command: Command, said: Said) -> None:
    again = said.to_command()
    if isinstance(said, SendMessage) and command.code == 10:
        again = send_of_code_10(said)
    assert again.code == command.code
    added = {name: text for name, text in again.ext.items() if name not in command.ext}
    assert added.items() <= ADDED_EXT.items()
    assert {name: text for name, text in again.ext.items() if name in command.ext} == dict(command.ext)
    if bytes(command.body) != bytes(again.body):
        assert with_added_members(loads(again.body, "ours")) == with_added_members(loads(command.body, "theirs"))


@pytest.mark.parametrize(
    "frame", [frame for frame in golden.frames() if not frame.is_answer and frame.request in REQUESTS], ids=str
)
def test_a_real_request_is_read_and_written_again(frame: golden.GoldenFrame) -> None:
    command = command_of(frame)
    assert_said_again(command, REQUESTS[frame.request].from_command(command))


@pytest.mark.parametrize(
    "frame",
    [
        frame
        for frame in golden.frames()
        if frame.request in ANSWERS and frame.code in {0, *OTHER_ANSWERS.get(frame.request, ())}
    ],
    ids=str,
)
def test_a_real_answer_is_read_and_written_again(frame: golden.GoldenFrame) -> None:
    command = command_of(frame)
    assert_said_again(command, ANSWERS[frame.request].from_command(command))


def test_what_java_sent_is_stored_as_it_says() -> None:
    """Bodies and properties of every recorded send can be read by the same functions that write ours."""
    sends = [SendMessage.from_command(command_of(frame)) for code in (310, 320) for frame in golden.requests(code)]
    assert len(sends) > 14
    assert {send.batch for send in sends} == {True, False}
    assert {send.sys_flag for send in sends} >= {0, 769, 4}
    for send in sends:
        properties = decode_properties(send.properties or "")
        assert ("UNIQ_KEY" in properties) or send.batch  # 4.9's batches have none of their own
        assert decode_properties(encode_properties(properties)) == properties
        if send.batch:
            items = list(iterate_batch_body(send.body))
            assert len({decode_properties(item.properties.decode())["UNIQ_KEY"] for item in items}) == 2
        else:
            assert decompress(send.body, send.sys_flag, max_bytes=MAX_BODY_BYTES)


def test_what_was_pulled_is_what_was_recorded() -> None:
    pulled = {
        bytes(PullAnswer.from_command(command_of(frame)).records) for frame in golden.answers(11) if frame.code == 0
    }
    assert pulled == {bytes.fromhex(pull["body"]) for pull in golden.load("real_pull_records.json")}
    assert sum(len(list(iterate_records(records))) for records in pulled) == 12


# --- The requests with both versions' answers


def rows(codes: dict[int, type[Said]]) -> list[Any]:
    return [
        pytest.param(row, id=f"{number}-{row['request']['code']}")
        for number, row in enumerate(golden.rows())
        if row["request"]["code"] in codes
    ]


def body_of(said: dict[str, Any]) -> bytes:
    """Returns the body, which stands as text, in hex, or was left out for its length."""
    body = said.get("body") or b""
    if isinstance(body, str):
        return body.encode()
    return bytes.fromhex(body.get("hex", "")) if isinstance(body, dict) else body


def command_from(said: dict[str, Any]) -> Command:
    ext = {name: "1700000000000" if text == "<ms>" else text for name, text in (said.get("ext") or {}).items()}
    return Command(said["code"], ext, body_of(said), remark=said.get("remark"))


# Refusals of the real servers for a request that lacks a field or garbles one.
LACKING = re.compile(r"NullPointerException|NumberFormatException: For input string|for the topic: null|topic is blank")


@pytest.mark.parametrize("row", rows(REQUESTS))
def test_a_question_is_read_where_the_real_server_could_read_it(row: dict[str, Any]) -> None:
    request, answer = command_from(row["request"]), row["5.4.0"]
    cls = REQUESTS[request.code]
    if answer != "none" and answer["code"] != 0 and LACKING.search(answer["remark"]):
        with contextlib.suppress(HeaderError, BodyError):
            assert_fields_kept(request, cls.from_command(request))
    else:
        assert_fields_kept(request, cls.from_command(request))


def assert_fields_kept(command: Command, said: Said) -> None:
    again = send_of_code_10(said) if isinstance(said, SendMessage) and command.code == 10 else said.to_command()
    kept = {name: text for name, text in command.ext.items() if name in again.ext}
    assert {name: again.ext[name] for name in kept} == kept


def answers(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the servers' answers, `same` only once; `none` and missing ones are no answers."""
    recorded = (row.get(version) for version in ("5.4.0", "4.9.7"))
    return [answer for answer in recorded if isinstance(answer, dict)]


@pytest.mark.parametrize("row", rows(ANSWERS))
def test_an_answer_is_read_or_is_a_refusal(row: dict[str, Any]) -> None:
    cls = ANSWERS[row["request"]["code"]]
    for answer in answers(row):
        command = command_from(answer)
        if command.code != 0 and not (cls is PullAnswer and command.code in PULL_ANSWERS):
            assert command.remark
            continue
        assert_fields_kept(command, cls.from_command(command))


def test_the_questions_hold_what_a_client_must_stand() -> None:
    """Edge offsets, refusals and both spellings: these rows are among those read above."""
    reported = {(row["request"]["code"], answer["code"]) for row in golden.rows() for answer in answers(row)}
    assert reported >= {(11, code) for code in (0, 1, 17, 19, 20, 21, 23, 24, 25, 29)}
    assert reported >= {(310, code) for code in (0, 1, 13, 16, 29)}
    assert reported >= {(14, 0), (14, 22), (15, 26), (15, 17), (105, 17)}
    assert json.loads(json.dumps(golden.rows())) == golden.rows()
