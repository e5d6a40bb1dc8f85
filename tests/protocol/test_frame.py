"""Frames: golden bytes, any cut of the stream, garbage, and lengths that lie."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import FrameError, HeaderError, ProtocolError
from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.framing.frame import (
    FIRST_BUFFER_BYTES,
    KEPT_BUFFER_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    FrameDecoder,
    encode_frame,
    encode_frame_head,
)
from tests.protocol.strategies import commands
from tests.support import golden

FRAMES = golden.frames()
JAVA_ROUTE = Command(105, {"topic": "TopicTest"}, opaque=7, language="JAVA")
JAVA_17 = Command(17, {}, opaque=7, flag=RESPONSE_BIT, remark="No topic", language="JAVA")
JAVA_ONEWAY = Command(904, {}, opaque=1, flag=2, language="JAVA")
PROPERTIES = "KEYS\x01K1\x02UNIQ_KEY\x017F0000010001000000000000000A0000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
V2_FIELDS = {
    "a": "PG",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
V1_FIELDS = {
    "queueId": "2",
    "flag": "0",
    "sysFlag": "0",
    "reconsumeTimes": "0",
    "batch": "false",
    "unitMode": "false",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "producerGroup": "PG",
    "bname": "broker-a",
    "topic": "TopicTest",
    "bornTimestamp": "1700000000000",
    "properties": PROPERTIES,
}
SEND_V2 = Command(310, V2_FIELDS, b"hello", opaque=9, language="JAVA")
SEND_V1 = Command(10, V1_FIELDS, b"hello", opaque=9, language="JAVA")
SENT = Command(
    0,
    {
        "msgId": "C0A8026500002A9F0000000000001A0C",
        "queueId": "2",
        "queueOffset": "5",
        "transactionId": "7F0000010001000000000000000A0000",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
    },
    opaque=9,
    flag=RESPONSE_BIT,
    language="JAVA",
)


def decode_all(pieces: Iterable[bytes], **limits: int) -> list[Command]:
    decoder = FrameDecoder(**limits)
    commands = []
    for piece in pieces:
        decoder.feed(piece)
        while (command := decoder.next_command()) is not None:
            commands.append(command)
    return commands


def as_json(command: Command) -> Command:
    return replace(command, serialization=Serialization.JSON)


def as_binary(command: Command) -> Command:
    return replace(command, serialization=Serialization.ROCKETMQ)


GOLDEN = {
    "getroute": JAVA_ROUTE,
    "resp17": JAVA_17,
    "oneway": JAVA_ONEWAY,
    "sendV2": SEND_V2,
    "sendV1": SEND_V1,
    "sendresp": SENT,
}


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("serialization", Serialization)
def test_javas_bytes_mean_what_java_meant(name: str, serialization: Serialization) -> None:
    raw = bytes.fromhex(golden.vectors()[f"{name} {serialization.name} hex"])
    expected = as_json(GOLDEN[name]) if serialization is Serialization.JSON else as_binary(GOLDEN[name])
    assert decode_all([raw]) == [expected]


# Java's map order is not significant; where it happens to be ours, so are the bytes.
SAME_ORDER = [
    ("getroute", Serialization.JSON),
    ("resp17", Serialization.JSON),
    ("oneway", Serialization.JSON),
    ("sendV2", Serialization.JSON),
    ("getroute", Serialization.ROCKETMQ),
    ("resp17", Serialization.ROCKETMQ),
    ("oneway", Serialization.ROCKETMQ),
    ("sendV2", Serialization.ROCKETMQ),
    ("sendV1", Serialization.ROCKETMQ),
    ("sendresp", Serialization.ROCKETMQ),
]


@pytest.mark.parametrize(("name", "serialization"), SAME_ORDER)
def test_our_bytes_are_javas(name: str, serialization: Serialization) -> None:
    command = as_json(GOLDEN[name]) if serialization is Serialization.JSON else as_binary(GOLDEN[name])
    assert encode_frame(command).hex() == golden.vectors()[f"{name} {serialization.name} hex"]


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_a_real_frame_survives_decoding_and_encoding(frame: golden.GoldenFrame) -> None:
    (command,) = decode_all([frame.raw])
    assert command.is_response == frame.is_answer
    assert command.code == (frame.request if frame.code is None else frame.code)
    assert command.is_oneway == frame.oneway or frame.is_answer
    assert decode_all([encode_frame(command)]) == [command]


def test_both_encodings_occur_in_the_recorded_frames() -> None:
    assert {decode_all([frame.raw])[0].serialization for frame in FRAMES} >= {Serialization.JSON}
    assert len(FRAMES) > 200


def test_frames_come_byte_by_byte_whole_and_with_a_tail() -> None:
    stream = b"".join(frame.raw for frame in FRAMES[:12])
    whole = decode_all([stream])
    assert len(whole) == 12
    assert decode_all(stream[i : i + 1] for i in range(len(stream))) == whole
    decoder = FrameDecoder()
    decoder.feed(FRAMES[0].raw + FRAMES[1].raw[:-1])
    assert decoder.next_command() == whole[0]
    assert decoder.next_command() is None
    assert decoder.buffered_bytes == len(FRAMES[1].raw) - 1
    decoder.feed(FRAMES[1].raw[-1:])
    assert decoder.next_command() == whole[1]
    assert decoder.buffered_bytes == 0


@given(st.lists(st.integers(1, 5000), max_size=60))
def test_any_cut_of_the_stream_gives_the_same_commands(cuts: list[int]) -> None:
    stream = b"".join(frame.raw for frame in FRAMES[:40])
    pieces, position = [], 0
    for cut in cuts:
        pieces.append(stream[position : position + cut])
        position += cut
    assert decode_all([*pieces, stream[position:]]) == decode_all([stream])


@given(st.sampled_from(Serialization).flatmap(commands))
def test_commands_survive_the_wire(command: Command) -> None:
    binary = command.serialization is Serialization.ROCKETMQ
    (decoded,) = decode_all([encode_frame(command)])
    kept = {name: text for name, text in command.ext.items() if text} if binary else command.ext
    assert decoded == replace(command, ext=kept)


def test_what_is_received_into_room_is_found() -> None:
    decoder = FrameDecoder()
    stream, commands = b"".join(frame.raw for frame in FRAMES[:60]), 0
    while stream:
        room = decoder.room()
        count = min(len(room), 1000, len(stream))
        room[:count] = stream[:count]
        decoder.received(count)
        stream = stream[count:]
        while decoder.next_command() is not None:
            commands += 1
    assert commands == 60


def encode_raw(header: bytes) -> bytes:
    return PREFIX.pack(4 + len(header), len(header)) + header


def test_more_than_the_buffer_may_be_fed_at_once() -> None:
    command = Command(10, body=bytes(MAX_FRAME_BYTES - 4096))
    assert len(decode_all([encode_frame(command) * 3])) == 3


def test_a_buffer_that_grew_large_is_given_back_between_frames() -> None:
    decoder = FrameDecoder()
    raw = encode_frame(Command(10, body=bytes(KEPT_BUFFER_BYTES)))
    decoder.feed(raw)
    assert decoder.next_command() is not None
    assert len(decoder.room()) == FIRST_BUFFER_BYTES
    decoder.feed(raw[:-1])
    assert decoder.next_command() is None
    assert decoder.buffered_bytes == len(raw) - 1


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    limit = 4096
    head = len(encode_frame_head(Command(10)))
    fits = encode_frame(Command(10, body=bytes(limit - head)))
    assert len(fits) == limit
    assert len(decode_all([fits], max_frame_bytes=limit)) == 1
    with pytest.raises(FrameError, match=r"4093 bytes; between 4 and 4092"):
        decode_all([encode_frame(Command(10, body=bytes(limit - head + 1)))], max_frame_bytes=limit)


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 3, 0])
def test_a_length_that_cannot_be_is_refused_before_the_bytes_come(length: int) -> None:
    decoder = FrameDecoder()
    decoder.feed(length.to_bytes(4, "big"))
    with pytest.raises(FrameError, match="between 4 and"):
        decoder.next_command()


def test_a_declared_length_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        decoder.feed((MAX_FRAME_BYTES - 4).to_bytes(4, "big") + b"\0\0\0\x10")
        assert decoder.next_command() is None
        assert len(decoder.room()) <= FIRST_BUFFER_BYTES
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="declares a header of 11 bytes"):
        decode_all([bytes.fromhex("0000000e0000000b")])


def test_a_header_beyond_the_bound_is_refused_before_it_has_come() -> None:
    bounded = FrameDecoder(max_header_bytes=100)
    header = b'{"code":1}'.ljust(100)
    bounded.feed(encode_raw(header))
    assert bounded.next_command() == Command(1, language="JAVA", version=0)
    bounded.feed(encode_raw(header + b" ")[:8])
    with pytest.raises(FrameError, match=r"a header of 101 bytes; 100 at most .*serverMaxHeaderBytes"):
        bounded.next_command()


def test_an_unknown_header_encoding_is_refused() -> None:
    with pytest.raises(FrameError, match="header encoding 2"):
        decode_all([bytes.fromhex("0000000e0200000a")])


def test_a_header_that_no_frame_holds_is_refused() -> None:
    with pytest.raises(HeaderError, match="does not fit into a frame"):
        encode_frame(Command(10, {"i": "x" * (1 << 24)}))


@given(st.binary(max_size=200))
def test_garbage_parses_or_gives_a_protocol_error(garbage: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_all([garbage])


@given(st.sampled_from([8, 9, 20, 60]), st.sampled_from((0, 1)), st.binary(max_size=120))
def test_garbage_in_a_right_frame_parses_or_gives_a_protocol_error(extra: int, kind: int, garbage: bytes) -> None:
    header_bytes = min(extra, len(garbage))
    frame = (4 + len(garbage)).to_bytes(4, "big") + (kind << 24 | header_bytes).to_bytes(4, "big") + garbage
    with contextlib.suppress(ProtocolError):
        for command in decode_all([frame]):
            dict(command.ext)


@given(st.sampled_from(FRAMES), st.data())
def test_a_real_frame_with_flipped_bits_parses_or_gives_a_protocol_error(
    frame: golden.GoldenFrame, data: st.DataObject
) -> None:
    raw = bytearray(frame.raw)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, min(len(raw), 400) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ProtocolError):
        for command in decode_all([bytes(raw)]):
            encode_frame(command)
