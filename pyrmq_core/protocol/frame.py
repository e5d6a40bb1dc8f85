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
from typing import Final

from pyrmq_core.errors import FrameError, HeaderError
from pyrmq_core.protocol.command import Command, Serialization
from pyrmq_core.protocol.headers import decode_header, encode_header

# `com.rocketmq.remoting.frameMaxLength`: the whole frame, its length field included.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
FIRST_BUFFER_BYTES: Final = 16 * 1024
KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
PREFIX: Final = struct.Struct(">II")
LENGTH: Final = struct.Struct(">I")


def encode_frame(command: Command) -> bytes:
    """The whole frame, header and body joined (one copy costs less than a second write)."""
    return b"".join((encode_frame_head(command), command.body))


def encode_frame_head(command: Command) -> bytes:
    """The frame without its body, for a writer that gathers."""
    header = encode_header(command)
    if len(header) >= 1 << 24:
        raise HeaderError(f"a header of {len(header)} bytes does not fit into a frame; shorten properties or fields")
    return PREFIX.pack(4 + len(header) + len(command.body), command.serialization << 24 | len(header)) + header


class FrameDecoder:
    """Finds commands in received bytes.

    Either `feed(data)`, or receive into `room()` and tell `received(count)`; then `next_command()` until it gives None.
    The buffer grows with the bytes that really came, never with a declared length alone: to twice `max_frame_bytes`
    at most while commands are taken out as they come whole. One that has grown large is given back between frames.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._start = 0
        self._end = 0

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
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > KEPT_BUFFER_BYTES:
                self._buffer = bytearray(FIRST_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_command(self) -> Command | None:
        """The next whole command, or None while it has not come whole; `FrameError` or `HeaderError` end the stream."""
        if self.buffered_bytes < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._buffer, self._start)
        if not 4 <= length <= self._max_frame_bytes - LENGTH.size:
            raise FrameError(
                f"a frame declares {length} bytes; between 4 and {self._max_frame_bytes - LENGTH.size} are possible. "
                "Is the peer a RocketMQ port, and plain where TLS is off?"
            )
        if self.buffered_bytes < PREFIX.size:
            return None
        _, word = PREFIX.unpack_from(self._buffer, self._start)
        serialization, header_bytes = self._check_word(word, length)
        if self.buffered_bytes < LENGTH.size + length:
            return None
        start = self._start + PREFIX.size
        body_start, end = start + header_bytes, self._start + LENGTH.size + length
        with memoryview(self._buffer) as view:
            header, body = bytes(view[start:body_start]), bytes(view[body_start:end])
        self._start = end
        return decode_header(serialization, header, body)

    def _check_word(self, word: int, length: int) -> tuple[Serialization, int]:
        kind, header_bytes = word >> 24, word & 0xFFFFFF
        if kind not in (Serialization.JSON, Serialization.ROCKETMQ):
            raise FrameError(f"a frame names header encoding {kind}; RocketMQ has 0 (JSON) and 1 (ROCKETMQ)")
        if header_bytes > length - 4:
            raise FrameError(f"a frame of {length} bytes declares a header of {header_bytes} bytes")
        return Serialization(kind), header_bytes

    def _make_room(self) -> None:
        """Move what is left to the front, or double the buffer when the frame under way fills it."""
        if self._start > len(self._buffer) // 2:
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            return
        grown = bytearray(2 * len(self._buffer))
        count = self.buffered_bytes
        grown[:count] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = grown, 0, count
