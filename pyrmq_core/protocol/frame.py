"""Frames: how commands lie on the wire, and how they are found again in a stream of bytes.

    offset        size        field
    0             4           length: 4 + header + body (does not count itself)
    4             1           serialization type of the header
    5             3           header length
    8             header      header
    8 + header    the rest    body

Sources: remoting/protocol/RemotingCommand.java, remoting/netty/NettyDecoder.java.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyrmq_core.errors import FrameError, HeaderError
from pyrmq_core.protocol.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.headers import decode_binary, decode_json, encode_binary, encode_header, encode_json

# `com.rocketmq.remoting.frameMaxLength`: the whole frame, its length field included.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
FIRST_BUFFER_BYTES: Final = 16 * 1024
READ_AHEAD_BYTES: Final = 256 * 1024  # how far the buffer grows for small frames that come in great numbers
KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
MAX_HEADER_BYTES: Final = (1 << 24) - 1
PREFIX: Final = struct.Struct(">II")
LENGTH: Final = struct.Struct(">I")


def encode_frame(command: Command) -> bytes:
    """The whole frame, header and body joined (one copy costs less than a second write)."""
    return b"".join((encode_frame_head(command), command.body))


def encode_frame_head(command: Command) -> bytes:
    """The frame without its body, for a writer that gathers."""
    return _frame_head(encode_header(command), len(command.body), command.serialization)


def encode_request_head(command: Command, opaque: int) -> bytes:
    """`encode_frame_head` of the request under this number, without making a second command of it."""
    encode = encode_json if command.serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(command, opaque), len(command.body), command.serialization)


def encode_answer_head(request: Command, answer: Command) -> bytes:
    """`encode_frame_head(request.answered(answer))` without making a second command of it."""
    serialization = request.serialization
    encode = encode_json if serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(answer, request.opaque, RESPONSE_BIT), len(answer.body), serialization)


def _frame_head(header: bytes, body_bytes: int, serialization: Serialization) -> bytes:
    header_bytes = len(header)
    if header_bytes > MAX_HEADER_BYTES:
        raise HeaderError(f"a header of {header_bytes} bytes does not fit into a frame; shorten properties or fields")
    return PREFIX.pack(4 + header_bytes + body_bytes, serialization << 24 | header_bytes) + header


class RequestForm:
    """Many requests that differ in their opaque and in whole numbers among their fields: the rest is written once.

    A fifth of the cost of a `Command` and its encoding, for requests without a body that go out by the thousand.
    """

    __slots__ = ("_form", "_like", "_varying")

    def __init__(self, like: Command, varying: Sequence[str]) -> None:
        fixed = {name: text for name, text in like.ext.items() if name not in varying}
        form = encode_json(replace(like, ext=fixed | dict.fromkeys(varying, "")), 0).decode().replace("%", "%%")
        for name in varying:  # inside of a text these quotes would be escaped
            form = form.replace(f'"{name}":""', f'"{name}":"%d"')
        self._form = form.replace('"opaque":0', '"opaque":%d').encode()
        self._like = like
        self._varying = varying

    @property
    def code(self) -> int:
        return self._like.code

    def frame(self, opaque: int, numbers: tuple[int, ...]) -> bytes:
        """The whole frame of one of them; `numbers` in the order of the varying fields."""
        header = self._form % (*numbers, opaque)
        header_bytes = len(header)
        return PREFIX.pack(4 + header_bytes, header_bytes) + header

    def command(self, numbers: tuple[int, ...]) -> Command:
        """The same as a value."""
        varying = {name: str(number) for name, number in zip(self._varying, numbers, strict=True)}
        return replace(self._like, ext={**self._like.ext, **varying})


class FrameDecoder:
    """Finds commands in received bytes.

    Either `feed(data)`, or receive into `room()` and tell `received(count)`; then `next_command()` until it gives None.
    The buffer grows with the bytes that really came, never with a declared length alone: to twice `max_frame_bytes`
    at most while commands are taken out as they come whole. One that has grown large is given back between frames, and
    `give_back` frees it whole (a server's idle connections hold none).
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_length = max_frame_bytes - LENGTH.size
        self._start = 0
        self._end = 0
        self._filled = False
        self._use(bytearray())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that has not come whole yet; 0 between frames."""
        return self._end - self._start

    def feed(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        size = len(self._buffer)
        if self._start == self._end:
            self._start = self._end = 0
            if not 0 < size <= KEPT_BUFFER_BYTES:
                self._use(bytearray(FIRST_BUFFER_BYTES))
            elif self._filled and size < READ_AHEAD_BYTES:
                self._use(bytearray(2 * size))
        elif self._end == size:
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        self._filled = self._end == len(self._buffer)

    def give_back(self) -> None:
        """Frees the buffer unless a frame is under way in it."""
        if self._start == self._end:
            self._start = self._end = 0
            self._use(bytearray())

    def next_command(self) -> Command | None:
        """The next whole command, or None while it has not come whole; `FrameError` or `HeaderError` end the stream."""
        start = self._start
        available = self._end - start
        if available < PREFIX.size:
            if available < LENGTH.size or 4 <= LENGTH.unpack_from(self._buffer, start)[0] <= self._max_length:
                return None
            raise self._bad_length(start)
        length, word = PREFIX.unpack_from(self._buffer, start)
        if not 4 <= length <= self._max_length:
            raise self._bad_length(start)
        kind, header_bytes = word >> 24, word & MAX_HEADER_BYTES
        if kind not in (0, 1):
            raise FrameError(f"a frame names header encoding {kind}; RocketMQ has 0 (JSON) and 1 (ROCKETMQ)")
        if header_bytes > length - 4:
            raise FrameError(f"a frame of {length} bytes declares a header of {header_bytes} bytes")
        if available < LENGTH.size + length:
            return None
        header_start = start + PREFIX.size
        body_start, self._start = header_start + header_bytes, start + LENGTH.size + length
        header = bytes(self._view[header_start:body_start])
        body = bytes(self._view[body_start : self._start])
        return decode_json(header, body) if kind == 0 else decode_binary(header, body)

    def _bad_length(self, start: int) -> FrameError:
        (length,) = LENGTH.unpack_from(self._buffer, start)
        return FrameError(
            f"a frame declares {length} bytes; between 4 and {self._max_length} are possible. "
            "Is the peer a RocketMQ port, and plain where TLS is off?"
        )

    def _make_room(self) -> None:
        """Move what is left to the front, or double the buffer: for the frame under way, or to read further ahead."""
        size, rest = len(self._buffer), self._view[self._start : self._end]
        if self._start > size // 2 and size >= READ_AHEAD_BYTES:
            self._view[: len(rest)] = bytes(rest)
        else:
            grown = bytearray(2 * size)
            grown[: len(rest)] = rest
            self._use(grown)
        self._start, self._end = 0, len(rest)

    def _use(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
