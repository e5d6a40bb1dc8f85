"""Frames: commands as bytes on the wire, and the decoder that finds them in a stream.

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
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from pyrmq_core.errors import FrameError, HeaderError
from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.framing.headers import decode_binary, decode_json, encode_binary, encode_header, encode_json
from pyrmq_core.protocol.framing.lent_answer import AnswerForm, AnswerRow, lent_answer
from pyrmq_core.protocol.framing.remedies import other_protocol

# The most bytes of a frame with its length field, as Java's `com.rocketmq.remoting.frameMaxLength`.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
FIRST_BUFFER_BYTES: Final = 16 * 1024
READ_AHEAD_BYTES: Final = 256 * 1024  # the buffer grows to this size for small frames that arrive in great numbers
KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024  # a larger buffer is freed between frames
# For a decoder that returns bodies as views of its buffer. The buffer has `LENT_BUFFER_BYTES`, or four times the
# longest frame up to `MOST_LENT_BYTES`. It is replaced when less than `LENT_ROOM_BYTES` are free. Bodies below
# `LENT_FROM_BYTES` are copied.
LENT_BUFFER_BYTES: Final = 1024 * 1024
LENT_FRAMES: Final = 4
MOST_LENT_BYTES: Final = 8 * 1024 * 1024
LENT_ROOM_BYTES: Final = 64 * 1024
LENT_FROM_BYTES: Final = 4 * 1024
# The most bytes of replaced buffers kept for reuse.
EARLIER_BYTES: Final = 12 * 1024 * 1024
MAX_HEADER_BYTES: Final = (1 << 24) - 1
LAST_WORD: Final = Serialization.ROCKETMQ << 24 | MAX_HEADER_BYTES  # the greatest valid value of bytes 4 to 7
# The longest header that a server reads. Most of a request's header is its properties: 32,767 bytes, which JSON may
# expand sixfold. Other tasks wait while a header is parsed: a quarter of a MiB takes some 10 ms at worst. A client has
# no such limit, because the answer to a batch names each of its messages.
SERVER_HEADER_BYTES: Final = 256 * 1024
PREFIX: Final = struct.Struct(">II")
LENGTH: Final = struct.Struct(">I")
PREFIX_BYTES: Final = PREFIX.size
LENGTH_BYTES: Final = LENGTH.size


def encode_frame(command: Command) -> bytes:
    """Returns a command as the bytes of one frame.

    Header and body are joined, since that copy costs less than a second write.
    """
    return b"".join((encode_frame_head(command), command.body))


def encode_frame_head(command: Command) -> bytes:
    """Returns the frame without its body, for a writer that sends the body from its own buffer."""
    return _frame_head(encode_header(command), len(command.body), command.serialization)


def encode_request_head(command: Request, opaque: int) -> bytes:
    """Returns a request's frame without its body. `opaque` replaces the opaque in the request."""
    if isinstance(command, FormedRequest):
        return command.head(opaque)
    encode = encode_json if command.serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(command, opaque), len(command.body), command.serialization)


def encode_answer_head(request: Command, answer: Command) -> bytes:
    """Returns an answer's frame without its body, with the opaque and the header encoding of its request."""
    serialization = request.serialization
    encode = encode_json if serialization is Serialization.JSON else encode_binary
    return _frame_head(encode(answer, request.opaque, RESPONSE_BIT), len(answer.body), serialization)


def _frame_head(header: bytes, body_bytes: int, serialization: int = 0) -> bytes:
    header_bytes = len(header)
    if header_bytes > MAX_HEADER_BYTES:
        raise HeaderError(f"a header of {header_bytes} bytes does not fit into a frame; shorten properties or fields")
    return PREFIX.pack(4 + header_bytes + body_bytes, serialization << 24 | header_bytes) + header


class RequestForm:
    """A template for many requests, which differ only in opaque, body, some numeric header fields and one text field.

    The rest of the header is encoded once. A request then costs a fifth of what a `Command` and its encoding cost.
    """

    __slots__ = ("_like", "_text", "_varying", "code", "pattern")

    def __init__(self, like: Command, varying: Sequence[str], text: str | None = None) -> None:
        names = [*varying, text] if text else varying
        fixed = {name: value for name, value in like.ext.items() if name not in names}
        form = encode_json(replace(like, ext=fixed | dict.fromkeys(names, "")), 0).decode().replace("%", "%%")
        for name in varying:  # no value can match `"name":""`, since quotes in values are escaped
            form = form.replace(f'"{name}":""', f'"{name}":"%d"')
        form = form.replace(f'"{text}":""', f'"{text}":%s') if text else form
        self.pattern = form.replace('"opaque":0', '"opaque":%d').encode()
        self._like = like
        self._text = text
        self._varying = varying
        self.code = int(like.code)

    def frame(self, opaque: int, numbers: tuple[int, ...]) -> bytes:
        header = self.pattern % (*numbers, opaque)
        header_bytes = len(header)
        return PREFIX.pack(4 + header_bytes, header_bytes) + header

    def request(self, numbers: tuple[int, ...], text: str, body: bytes | memoryview) -> FormedRequest:
        return _make_formed_request(self, numbers, text, body, self.code, 0)

    def command(self, numbers: tuple[int, ...], text: str = "", body: bytes | memoryview = b"") -> Command:
        varying = {name: str(number) for name, number in zip(self._varying, numbers, strict=True)}
        if self._text is not None:
            varying[self._text] = text
        return replace(self._like, ext={**self._like.ext, **varying}, body=body)


@dataclass(frozen=True, slots=True)
class FormedRequest:
    """A request as a template (`RequestForm`) and the values of its varying fields: faster to encode than a `Command`.

    `numbers` and `text` are these values. `command()` returns the same request as a `Command`.
    """

    form: RequestForm
    numbers: tuple[int, ...]
    text: str
    body: bytes | memoryview
    code: int
    flag: int

    def head(self, opaque: int) -> bytes:
        text = encode_basestring(self.text).encode("utf-8", "replace")
        return _frame_head(self.form.pattern % (*self.numbers, text, opaque), len(self.body))

    def command(self) -> Command:
        return self.form.command(self.numbers, self.text, self.body)


# A fast constructor (`fast_dataclass`), called for every message sent.
_make_formed_request: Final = maker_of(FormedRequest)

Request: TypeAlias = Command | FormedRequest


def as_command(request: Request) -> Command:
    return request if isinstance(request, Command) else request.command()


class FrameDecoder:
    """A decoder that divides a stream of received bytes into frames and returns them as commands.

    Either call `feed(data)`, or receive into `room()` and call `received(count)`. Then call `next_command()` until it
    returns None. The buffer grows with the bytes that arrive, not with a declared length: to at most twice
    `max_frame_bytes`. A buffer of more than 4 MiB is freed between frames. `give_back` frees a buffer of any size, so
    that idle connections take no memory. A declared header length above `max_header_bytes` raises `FrameError` at once.

    If the attribute `lends` is set, bodies of 4 KiB or more are not copied: they are views of the buffer. The decoder
    does not reuse a buffer while a view of it exists. The attribute `answer_form` is a regular expression for headers.
    An answer with an uncopied body and a matching header is returned as a `LentAnswer`, with its header unparsed.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_length = max_frame_bytes - LENGTH.size
        self._max_header_bytes = max_header_bytes
        self._start = 0
        self._end = 0
        self._filled = False
        self.lends = False
        self.answer_form: AnswerForm | None = None
        self._is_lent = False  # whether returned bodies are views of the buffer
        self._longest = 0
        self._earlier: deque[bytearray] = deque()
        self._use(bytearray())

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes not yet returned as commands, 0 between frames."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that the buffer takes, together with replaced buffers kept for reuse."""
        return len(self._buffer) + sum(map(len, self._earlier))

    def feed(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def room(self) -> memoryview:
        """Returns the free part of the buffer, for the next received bytes. It is never empty."""
        size = len(self._buffer)
        if self._is_lent:
            if self._end + LENT_ROOM_BYTES > size:
                self._use_next()
        elif self._start == self._end:
            self._start = self._end = 0
            if not 0 < size <= KEPT_BUFFER_BYTES:
                self._use(bytearray(FIRST_BUFFER_BYTES))
            elif self._filled and size < READ_AHEAD_BYTES:
                self._use(bytearray(2 * size))
        elif self._end == size:
            self._make_room()
        # A large buffer is filled in parts, so that frames are decoded while their bytes are in the processor's cache.
        return self._view[self._end : self._end + READ_AHEAD_BYTES] if self.lends else self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        self._filled = self._end == len(self._buffer)

    def give_back(self) -> None:
        self._earlier.clear()
        self._longest = 0
        if self._start == self._end:
            self._start = self._end = 0
            self._use(bytearray())

    def next_command(self) -> Command | None:
        """Returns the next command, or None until it has arrived completely.

        After a `FrameError` or `HeaderError`, the stream cannot be decoded further.
        """
        start = self._start
        body_start = start + PREFIX_BYTES
        if self._end < body_start:
            if self._end >= start + LENGTH_BYTES:
                (length,) = LENGTH.unpack_from(self._buffer, start)
                if not 4 <= length <= self._max_length:
                    raise self._not_a_frame(length, 0)
            return None
        length, word = PREFIX.unpack_from(self._buffer, start)
        header_bytes = word & MAX_HEADER_BYTES
        if (
            not header_bytes + 4 <= length <= self._max_length
            or word > LAST_WORD
            or header_bytes > self._max_header_bytes
            or not header_bytes
        ):
            raise self._not_a_frame(length, word)
        end = start + LENGTH_BYTES + length
        if end > self._end:
            return None
        self._start = end
        view = self._view
        header = bytes(view[body_start : body_start + header_bytes])
        body_start += header_bytes
        body: bytes | memoryview = b""
        if self.lends and end - body_start >= LENT_FROM_BYTES:
            body, self._is_lent = view[body_start:end], True
            if end - start > self._longest:
                self._longest = end - start
            form = self.answer_form
            if form is not None and word == header_bytes and (answer := lent_answer(form, header, body)) is not None:
                return answer
        elif body_start < end:
            body = bytes(view[body_start:end])
        return decode_json(header, body) if word == header_bytes else decode_binary(header, body)

    def next_rows(self) -> list[AnswerRow]:
        """Returns the next answers in the buffer as rows: the opaque, the numbers in the header, the header, the body.

        Stops before the first frame that is incomplete, has a body below 4 KiB, or has a header that does not match
        `answer_form`.
        """
        rows: list[AnswerRow] = []
        form = self.answer_form
        if form is None or not self.lends:
            return rows
        unpack, fullmatch, view, buffer = PREFIX.unpack_from, form.fullmatch, self._view, self._buffer
        most, most_header, longest = self._max_length, self._max_header_bytes, self._longest
        start, last = self._start, self._end
        while start + PREFIX_BYTES <= last:
            length, header_bytes = unpack(buffer, start)
            end = start + LENGTH_BYTES + length
            body_start = start + PREFIX_BYTES + header_bytes
            if end > last or length > most or header_bytes > most_header or end - body_start < LENT_FROM_BYTES:
                break
            match = fullmatch(buffer, start + PREFIX_BYTES, body_start)
            if match is None:
                break
            numbers = tuple(map(int, match.groups()))
            rows.append((numbers[-1], numbers, match[0], view[body_start:end]))
            if end - start > longest:
                longest = end - start
            start = end
        if rows:
            self._start, self._longest, self._is_lent = start, longest, True
        return rows

    def _not_a_frame(self, length: int, word: int) -> FrameError:
        encoding, header_bytes = word >> 24, word & MAX_HEADER_BYTES
        if other := other_protocol(bytes(self._view[self._start : self._end][:PREFIX_BYTES])):
            return FrameError(f"it begins like {other}")
        if not 4 <= length <= self._max_length:
            return FrameError(
                f"a frame declares {length} bytes; between 4 and {self._max_length} are possible. "
                "Is the peer a RocketMQ port, and plain where TLS is off?"
            )
        if encoding > 1:
            return FrameError(f"a frame names header encoding {encoding}; RocketMQ has 0 (JSON) and 1 (ROCKETMQ)")
        if not header_bytes or header_bytes > length - 4:
            return FrameError(f"a frame of {length} bytes declares a header of {header_bytes} bytes")
        return FrameError(
            f"a frame declares a header of {header_bytes} bytes; {self._max_header_bytes} at most are read here. "
            "Shorten properties or fields, or raise serverMaxHeaderBytes there"
        )

    def _make_room(self) -> None:
        size, unread = len(self._buffer), self._view[self._start : self._end]
        if self._start > size // 2 and size >= READ_AHEAD_BYTES:
            self._view[: len(unread)] = bytes(unread)
        else:
            grown = bytearray(2 * size)
            grown[: len(unread)] = unread
            self._use(grown)
        self._start, self._end = 0, len(unread)

    def _use_next(self) -> None:
        """Replaces a buffer of which views were returned. Copies its unread bytes to the new one."""
        earlier, unread = self._earlier, self._view[self._start : self._end]
        for_frames = min(LENT_FRAMES * self._longest, MOST_LENT_BYTES)
        following = self._unused(max(LENT_BUFFER_BYTES, for_frames, 2 * len(unread)))
        following[: len(unread)] = unread
        earlier.append(self._buffer)
        while sum(map(len, earlier)) > EARLIER_BYTES:
            earlier.popleft()
        self._start, self._end = 0, len(unread)
        unread.release()
        self._use(following)

    def _unused(self, size: int) -> bytearray:
        for buffer in self._earlier:
            if len(buffer) != size:
                continue
            try:
                del buffer[-1:]  # raises BufferError if a view of the buffer exists
            except BufferError:
                continue
            buffer.append(0)
            self._earlier.remove(buffer)
            return buffer
        return bytearray(size)

    def _use(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._is_lent = False
