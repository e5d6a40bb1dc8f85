"""Headers written once for many requests, and frames' heads written for another opaque: equal bytes mean the same."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Command, Serialization, make_command
from pyrmq_core.protocol.framing.frame import (
    FIRST_BUFFER_BYTES,
    READ_AHEAD_BYTES,
    FrameDecoder,
    RequestForm,
    as_command,
    encode_answer_head,
    encode_frame_head,
    encode_request_head,
)
from pyrmq_core.protocol.framing.headers import decode_json, encode_json
from tests.protocol.strategies import EXT, commands

ANY = st.sampled_from(Serialization).flatmap(commands)
OPAQUES = st.integers(-(2**31), 2**31 - 1)


@given(EXT, st.lists(st.integers(0, 2**63 - 1), max_size=3), st.text(), st.binary(max_size=50), OPAQUES)
def test_a_form_means_what_its_command_means(
    fixed: dict[str, str], numbers: list[int], text: str, body: bytes, opaque: int
) -> None:
    varying = [f"number {index}" for index in range(len(numbers))]
    form = RequestForm(Command(310, {**fixed, varying[0] if varying else "x": "7"}), varying, "text")
    request = form.request(tuple(numbers), text, body)
    meant = as_command(request)
    assert meant.ext == {**form.command(tuple(numbers)).ext, "text": text}
    assert (meant.code, meant.body) == (request.code, request.body) == (310, body)
    decoder = FrameDecoder()
    decoder.feed(encode_request_head(request, opaque) + body)
    assert decoder.next_command() == decode_json(encode_json(meant, opaque), body)


def test_a_form_without_a_text() -> None:
    form = RequestForm(Command(11, {"b": "100 %", "n": "1"}), ("n",))
    decoder = FrameDecoder()
    decoder.feed(form.frame(9, (2,)))
    assert decoder.next_command() == replace(form.command((2,)), opaque=9)


@given(ANY, OPAQUES)
def test_a_request_head_under_another_number(command: Command, opaque: int) -> None:
    assert encode_request_head(command, opaque) == encode_frame_head(replace(command, opaque=opaque))


@given(st.sampled_from(Serialization).flatmap(lambda kind: st.tuples(commands(kind), commands(kind))))
def test_an_answer_head_completes_the_answer(pair: tuple[Command, Command]) -> None:
    request, answer = pair
    assert encode_answer_head(request, answer) == encode_frame_head(request.answered(answer))


def test_a_decoder_gives_its_buffer_back_between_frames_only() -> None:
    decoder = FrameDecoder()
    raw = encode_frame_head(Command(1))
    decoder.feed(raw + raw[:-1])
    assert decoder.next_command() is not None
    decoder.give_back()
    assert decoder.buffered_bytes == len(raw) - 1
    decoder.feed(raw[-1:])
    assert decoder.next_command() is not None
    decoder.give_back()
    decoder.feed(raw)
    assert decoder.next_command() == decode_json(raw[8:])


def test_a_decoder_reads_further_ahead_where_much_comes() -> None:
    decoder = FrameDecoder()
    raw, stream, count, rooms = encode_frame_head(Command(1)), b"", 0, []
    for _ in range(40):
        room = decoder.room()
        rooms.append(len(room))
        while len(stream) < len(room):
            stream += raw
        room[:] = stream[: len(room)]
        stream = stream[len(room) :]
        decoder.received(len(room))
        while decoder.next_command() is not None:
            count += 1
    assert (count + 1) * len(raw) == sum(rooms) + len(raw) - decoder.buffered_bytes
    assert rooms[0] == FIRST_BUFFER_BYTES
    assert FIRST_BUFFER_BYTES < max(rooms) <= READ_AHEAD_BYTES


def test_a_decoder_stays_small_where_little_comes() -> None:
    decoder = FrameDecoder()
    raw = encode_frame_head(Command(1))
    for _ in range(1000):
        assert len(decoder.room()) == FIRST_BUFFER_BYTES
        decoder.feed(raw)
        assert decoder.next_command() is not None


@given(ANY)
def test_a_command_made_by_a_decoder_is_like_any_other(command: Command) -> None:
    decoded = make_command(
        command.code,
        command.ext,
        command.body,
        command.opaque,
        command.flag,
        command.remark,
        command.language,
        command.version,
        command.serialization,
    )
    assert decoded == command
    assert type(decoded) is Command
    assert repr(decoded) == repr(command)
    assert replace(decoded, opaque=9) == replace(command, opaque=9)
    with pytest.raises(FrozenInstanceError):
        decoded.code = 1  # type: ignore[misc]
