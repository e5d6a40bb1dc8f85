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
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from pyrmq_core.errors import FrameError, HeaderError
from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.framing.headers import decode_binary, decode_json, encode_binary, encode_header, encode_json

# `com.rocketmq.remoting.frameMaxLength`: the whole frame, its length field included.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
FIRST_BUFFER_BYTES: Final = 16 * 1024
READ_AHEAD_BYTES: Final = 256 * 1024  # how far the buffer grows for small frames that come in great numbers
KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
MAX_HEADER_BYTES: Final = (1 << 24) - 1
# What a server reads at most: of a request's header its properties are the largest part, 32,767 bytes of which JSON may
# make six times as many, 196,602. It is read in one step: the quarter of a MiB takes some 10 ms at worst. A client
# needs more: the answer to a batch names each of its messages.
SERVER_HEADER_BYTES: Final = 256 * 1024
PREFIX: Final = struct.Struct(">II")
LENGTH: Final = struct.Struct(">I")
PREFIX_BYTES: Final = PREFIX.size
LENGTH_BYTES: Final = LENGTH.size


def encode_frame(command: Command) -> bytes:
    """The whole frame, header and body joined (one copy costs less than a second write)."""
    return b"".join((encode_frame_head(command), command.body))


def encode_frame_head(command: Command) -> bytes:
    """The frame without its body, for a writer that gathers."""
    return _frame_head(encode_header(command), len(command.body), command.serialization)


def encode_request_head(command: Request, opaque: int) -> bytes:
    """`encode_frame_head` of the request under this number, without making a second command of it."""
    if isinstance(command, FormedRequest):
        return command.head(opaque)
    encode = encode_json if command.serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(command, opaque), len(command.body), command.serialization)


def encode_answer_head(request: Command, answer: Command) -> bytes:
    """`encode_frame_head(request.answered(answer))` without making a second command of it."""
    serialization = request.serialization
    encode = encode_json if serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(answer, request.opaque, RESPONSE_BIT), len(answer.body), serialization)


def _frame_head(header: bytes, body_bytes: int, serialization: int = 0) -> bytes:
    header_bytes = len(header)
    if header_bytes > MAX_HEADER_BYTES:
        raise HeaderError(f"a header of {header_bytes} bytes does not fit into a frame; shorten properties or fields")
    return PREFIX.pack(4 + header_bytes + body_bytes, serialization << 24 | header_bytes) + header


class RequestForm:
    """Many requests that differ in opaque, body, whole numbers and one text of the header: the rest is written once.

    A fifth of the cost of a `Command` and its encoding, for requests that go out by the thousand.
    """

    __slots__ = ("_like", "_text", "_varying", "code", "pattern")

    def __init__(self, like: Command, varying: Sequence[str], text: str | None = None) -> None:
        names = [*varying, text] if text else varying
        fixed = {name: value for name, value in like.ext.items() if name not in names}
        form = encode_json(replace(like, ext=fixed | dict.fromkeys(names, "")), 0).decode().replace("%", "%%")
        for name in varying:  # inside of a text these quotes would be escaped
            form = form.replace(f'"{name}":""', f'"{name}":"%d"')
        form = form.replace(f'"{text}":""', f'"{text}":%s') if text else form
        self.pattern = form.replace('"opaque":0', '"opaque":%d')
        self._like = like
        self._text = text
        self._varying = varying
        self.code = int(like.code)

    def frame(self, opaque: int, numbers: tuple[int, ...]) -> bytes:
        """The whole frame of one without a body; `numbers` in the order of the varying fields."""
        header = (self.pattern % (*numbers, opaque)).encode()
        header_bytes = len(header)
        return PREFIX.pack(4 + header_bytes, header_bytes) + header

    def request(self, numbers: tuple[int, ...], text: str, body: bytes | memoryview) -> FormedRequest:
        """One of them; `numbers` in the order of the varying fields."""
        return _make_formed_request(self, numbers, text, body, self.code, 0)

    def command(self, numbers: tuple[int, ...], text: str = "", body: bytes | memoryview = b"") -> Command:
        """The same as a value."""
        varying = {name: str(number) for name, number in zip(self._varying, numbers, strict=True)}
        if self._text is not None:
            varying[self._text] = text
        return replace(self._like, ext={**self._like.ext, **varying}, body=body)


@dataclass(frozen=True, slots=True)
class FormedRequest:
    """One request of a form, which is sent as it is; who has to look into it takes its `command`."""

    form: RequestForm
    numbers: tuple[int, ...]
    text: str
    body: bytes | memoryview
    code: int
    flag: int

    def head(self, opaque: int) -> bytes:
        """The frame without its body."""
        text = encode_basestring(self.text)
        header = (self.form.pattern % (*self.numbers, text, opaque)).encode("utf-8", "replace")
        return _frame_head(header, len(self.body))

    def command(self) -> Command:
        """The same as a value."""
        return self.form.command(self.numbers, self.text, self.body)


_make_formed_request: Final = maker_of(FormedRequest)

Request: TypeAlias = Command | FormedRequest


def as_command(request: Request) -> Command:
    """For who changes the request, or looks into it."""
    return request if isinstance(request, Command) else request.command()


class FrameDecoder:
    """Finds commands in received bytes.

    Either `feed(data)`, or receive into `room()` and tell `received(count)`; then `next_command()` until it gives None.
    The buffer grows with the bytes that really came, never with a declared length alone: to twice `max_frame_bytes`
    at most while commands are taken out as they come whole. One that has grown large is given back between frames, and
    `give_back` frees it whole (a server's idle connections hold none). A header longer than `max_header_bytes` is
    refused by its declared length, before the rest of it has come.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_length = max_frame_bytes - LENGTH.size
        self._max_header_bytes = max_header_bytes
        self._start = 0
        self._end = 0
        self._filled = False
        self._use(bytearray())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that has not come whole yet; 0 between frames."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """Memory that the buffer takes, whether or not a frame is in it."""
        return len(self._buffer)

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
        if available < PREFIX_BYTES:
            if available < LENGTH_BYTES or 4 <= LENGTH.unpack_from(self._buffer, start)[0] <= self._max_length:
                return None
            raise self._bad_length(start)
        length, word = PREFIX.unpack_from(self._buffer, start)
        if not 4 <= length <= self._max_length:
            raise self._bad_length(start)
        is_binary, header_bytes = word >> 24, word & MAX_HEADER_BYTES
        if is_binary > 1:
            raise FrameError(f"a frame names header encoding {is_binary}; RocketMQ has 0 (JSON) and 1 (ROCKETMQ)")
        if header_bytes > length - 4:
            raise FrameError(f"a frame of {length} bytes declares a header of {header_bytes} bytes")
        if header_bytes > self._max_header_bytes:
            raise FrameError(
                f"a frame declares a header of {header_bytes} bytes; {self._max_header_bytes} at most are read here. "
                "Shorten properties or fields, or raise serverMaxHeaderBytes there"
            )
        end = start + LENGTH_BYTES + length
        if end > self._end:
            return None
        self._start = end
        view, body_start = self._view, start + PREFIX_BYTES + header_bytes
        header = bytes(view[start + PREFIX_BYTES : body_start])
        body = bytes(view[body_start:end]) if body_start < end else b""
        return decode_binary(header, body) if is_binary else decode_json(header, body)

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
