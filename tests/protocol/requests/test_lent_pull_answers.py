"""Lent answers to pulls: whatever arrives, a decoder with `PULL_ANSWER_FORM` gives the commands of one without it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import ProtocolError
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import LENT_FROM_BYTES, PREFIX, FrameDecoder, encode_frame
from pyrmq_core.protocol.framing.headers import decode_json
from pyrmq_core.protocol.framing.lent_answer import LentAnswer, row_command
from pyrmq_core.protocol.requests.broker.pull_message import PULL_ANSWER_FORM, PullAnswer, pull_offsets
from tests.support import golden

BODY = bytes(range(256)) * (LENT_FROM_BYTES // 256)
HEADER = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","groupSysFlag":"0","nextBeginOffset":"132","maxOffset":"250",'
    b'"minOffset":"7","topicSysFlag":"0"},"flag":1,"language":"JAVA","opaque":12,"remark":"FOUND",'
    b'"serializeTypeCurrentRPC":"JSON","version":493}'
)


def framed(header: bytes, body: bytes = BODY, kind: int = 0) -> bytes:
    return PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def decoded(frames: Sequence[bytes], *, unread: bool) -> list[Command]:
    """Returns the commands of a lending decoder, with or without the form."""
    decoder = FrameDecoder()
    decoder.lends = True
    decoder.answer_form = PULL_ANSWER_FORM if unread else None
    decoder.feed(b"".join(frames))
    commands: list[Command] = []
    while (command := decoder.next_command()) is not None:  # a comparison would read the command
        commands.append(command)
    return commands


def outcome(frames: Sequence[bytes], *, unread: bool) -> object:
    """Returns the error that ends the stream; else the facts of each command."""
    try:
        commands = decoded(frames, unread=unread)
    except ProtocolError as error:
        return f"{type(error).__name__}: {error}"
    return [facts(command) for command in commands]


def facts(command: Command) -> object:
    """Returns offsets and fields, or the error of reading them."""
    try:
        return pull_offsets(command), dict(command.ext), command
    except ProtocolError as error:
        return command.opaque, str(error)


def test_answers_of_real_brokers_of_both_releases_are_left_unread() -> None:
    frames = [frame for frame in golden.answers(11) if frame.code == 0]
    assert len({frame.source for frame in frames}) >= 2
    for frame in frames:
        header_bytes = PREFIX.unpack_from(frame.raw)[1]
        header = frame.raw[8 : 8 + header_bytes]
        (answer,) = decoded([framed(header)], unread=True)
        assert isinstance(answer, LentAnswer)
        plain = decode_json(header, BODY)
        assert (answer.code, answer.opaque, answer.flag) == (plain.code, plain.opaque, plain.flag)
        assert pull_offsets(answer) == pull_offsets(plain)
        assert answer == plain


def test_an_answer_of_our_own_broker_is_left_unread() -> None:
    command = Command(0, PullAnswer(next_begin_offset=5, max_offset=9, min_offset=1).to_command().ext, BODY, 3, 1)
    (answer,) = decoded([encode_frame(command)], unread=True)
    assert isinstance(answer, LentAnswer)
    assert pull_offsets(answer) == (5, 9, 1)


@pytest.mark.parametrize("use", ["ext", "remark", "language", "version", "repr", "equality", "with_own_body"])
def test_any_other_use_makes_it_a_plain_command(use: str) -> None:
    (answer,) = decoded([framed(HEADER)], unread=True)
    assert type(answer) is LentAnswer
    plain = decode_json(HEADER, BODY)
    if use == "repr":
        assert "nextBeginOffset" in repr(answer)
    elif use == "equality":
        assert answer == plain
        assert decoded([framed(HEADER)], unread=True) == decoded([framed(HEADER)], unread=True)
    elif use == "with_own_body":
        owned = answer.with_own_body()
        assert type(owned) is Command
        assert (owned, type(owned.body)) == (plain, bytes)
    else:
        assert getattr(answer, use) == getattr(plain, use)
    assert type(answer) is Command
    assert answer == plain


FRAMES = (
    framed(HEADER),
    framed(HEADER, BODY[1:]),
    framed(HEADER.replace(b'"code":0', b'"code":19')),
    framed(HEADER.replace(b'"opaque":12', b'"opaque":13'), BODY * 3),
    framed(HEADER, b""),
)


@given(st.lists(st.sampled_from(FRAMES), max_size=8), st.lists(st.integers(1, 20_000), max_size=8))
def test_rows_are_the_commands_that_would_come_next(frames: list[bytes], sizes: list[int]) -> None:
    """They are, with other frames between them, and for any cut of the bytes."""
    decoder = FrameDecoder()
    decoder.lends, decoder.answer_form = True, PULL_ANSWER_FORM
    stream, commands = b"".join(frames), list[Command]()
    for size in (*sizes, len(stream) + 1):
        decoder.feed(stream[:size])
        stream = stream[size:]
        is_over = False
        while not is_over:
            rows = decoder.next_rows()
            commands += map(row_command, rows)
            command = decoder.next_command()
            assert not isinstance(command, LentAnswer)
            is_over = command is None
            commands += [] if command is None else [command]
    assert decoder.buffered_bytes == 0
    assert commands == decoded(frames, unread=False)


def test_a_short_body_comes_as_a_command() -> None:
    (answer,) = decoded([framed(HEADER, BODY[1:])], unread=True)
    assert type(answer) is Command


def test_the_same_bytes_in_the_other_encoding_are_refused() -> None:
    frames = [framed(HEADER, kind=1)]
    assert "ROCKETMQ header" in str(outcome(frames, unread=True))
    assert outcome(frames, unread=True) == outcome(frames, unread=False)


PIECES = st.sampled_from(
    [b'"', b"{", b"}", b"-", b"n", b",", b"9" * 12, b'"opaque":7,', b"\xff", b"[", b"\\", b"x" * 500]
)


@given(st.lists(st.tuples(st.integers(0, len(HEADER)), st.integers(0, 3), PIECES), max_size=3))
def test_changed_headers_are_read_or_refused_alike(changes: list[tuple[int, int, bytes]]) -> None:
    header = HEADER
    for at, dropped, piece in changes:
        header = header[:at] + piece + header[at + dropped :]
    frames = [framed(header), framed(HEADER)]
    assert outcome(frames, unread=True) == outcome(frames, unread=False)


@pytest.mark.parametrize("name", [b"groupSysFlag", b"topicSysFlag"])
def test_nested_fields_are_refused_alike(name: bytes) -> None:
    frames = [framed(HEADER.replace(b'"' + name + b'":"0"', b'"' + name + b'":{"0"'))]
    assert "HeaderError" in str(outcome(frames, unread=True))
    assert outcome(frames, unread=True) == outcome(frames, unread=False)


@pytest.mark.parametrize("number", [b"2147483647", b"2147483648", b"9999999999", b"-1"])
def test_opaques_at_the_bounds_are_read_or_refused_alike(number: bytes) -> None:
    frames = [framed(HEADER.replace(b'"opaque":12', b'"opaque":' + number))]
    assert outcome(frames, unread=True) == outcome(frames, unread=False)
