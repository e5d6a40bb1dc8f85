"""The compression of bodies: by zlib, and by LZ4 and Zstandard where their libraries are installed.

Without the library `zstandard`, the module `compression.zstd` of Python 3.14 and later is used.

Three bits of a message's sysFlag name the algorithm. LZ4 bodies are LZ4 frames, Zstandard bodies are Zstandard frames.
Sources: common/compression/CompressionType.java, ZlibCompressor.java, Lz4Compressor.java, ZstdCompressor.java (5.4.0).
"""

from __future__ import annotations

import enum
import importlib
import zlib
from typing import Any, Final

from pyrmq_core.errors import BodyTooLarge, MissingLibrary, RecordError
from pyrmq_core.protocol.messages.sysflag import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

# The default of Java's `rocketmq.message.compressLevel`.
DEFAULT_LEVEL: Final = 5
# Zstandard bodies are decompressed in pieces, to stop at a limit. A piece grows to 32 MiB at most, since four bytes may
# be a block of 128 KiB.
ZSTD_PIECE_BYTES: Final = 1024
# The Zstandard module of Python 3.14 and later.
OWN_ZSTD: Final = "compression.zstd"


class CompressionType(enum.Enum):
    """The algorithm by which a body is compressed. The value is the number in bits 8 to 10 of the message's sysFlag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The sysFlag bits of a message whose body is compressed by this algorithm."""
        return COMPRESSED | self.value << COMPRESSION_SHIFT

    def check_library(self) -> None:
        """Raises `MissingLibrary` if the library for this algorithm is not installed."""
        compress(b"", self)


# Producers before 5.0 compress by zlib and leave the three bits of the algorithm 0.
_TYPES: Final = {0: CompressionType.ZLIB, **{kind.value: kind for kind in CompressionType}}


def compression_of(sys_flag: int) -> CompressionType | None:
    return _TYPES.get((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT) if sys_flag & COMPRESSED else None


def compress(body: bytes | memoryview, kind: CompressionType, level: int = DEFAULT_LEVEL) -> bytes:
    """Returns the body compressed by the algorithm `kind`. LZ4 ignores `level`, as in Java.

    Raises `MissingLibrary` if the algorithm's library is not installed.
    """
    match kind:
        case CompressionType.ZLIB:
            return zlib.compress(body, level)
        case CompressionType.LZ4:
            return _compress_lz4(body, level)
        case CompressionType.ZSTD:
            return _compress_zstd(body, level)


def decompress(body: bytes | memoryview, sys_flag: int, *, max_bytes: int) -> bytes:
    """Returns the decompressed body, or the body itself if `sys_flag` says that it is not compressed.

    Raises `BodyTooLarge` for a body that would grow beyond `max_bytes`, even if it declares a smaller size. Raises
    `RecordError` for an unknown algorithm, and for bytes that the algorithm cannot decompress. Raises `MissingLibrary`
    if the algorithm's library is not installed.
    """
    if not sys_flag & COMPRESSED:
        return bytes(body)
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    kind = _TYPES.get(number)
    if kind is None:
        raise RecordError(f"compression type {number} is unknown; 1 is LZ4, 2 Zstandard, 0 and 3 are zlib")
    match kind:
        case CompressionType.ZLIB:
            decompressed = _decompress_zlib(body, max_bytes)
        case CompressionType.LZ4:
            decompressed = _decompress_lz4(body, max_bytes)
        case CompressionType.ZSTD:
            decompressed = _decompress_zstd(body, max_bytes)
    if len(decompressed) > max_bytes:
        raise _too_large(kind, max_bytes)
    return decompressed


def _decompress_zlib(body: bytes | memoryview, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        decompressed = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise RecordError(f"a body is marked as zlib and cannot be inflated: {error}") from error
    if not stream.eof and len(decompressed) <= max_bytes:
        raise RecordError("a zlib body ends before its stream does")
    return decompressed


def _compress_lz4(body: bytes | memoryview, level: int) -> bytes:
    try:
        import lz4.frame
    except ImportError as error:
        raise _missing("lz4", "LZ4") from error
    # As in Java's LZ4FrameOutputStream, the level is ignored.
    compressed: bytes = lz4.frame.compress(bytes(body), compression_level=0, store_size=False)
    return compressed


def _decompress_lz4(body: bytes | memoryview, max_bytes: int) -> bytes:
    try:
        import lz4.frame
    except ImportError as error:
        raise _missing("lz4", "LZ4") from error
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        decompressed: bytes = stream.decompress(bytes(body), max_length=max_bytes + 1)
    except (RuntimeError, ValueError) as error:
        raise RecordError(f"a body is marked as LZ4 and is no LZ4 frame: {error}") from error
    if not stream.eof and len(decompressed) <= max_bytes:
        raise RecordError("an LZ4 body ends before its frame does")
    return decompressed


def _compress_zstd(body: bytes | memoryview, level: int) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        if (own := _own_zstd()) is None:
            raise _missing("zstd", "Zstandard") from error
        packed: bytes = own.compress(body, level)
        return packed
    return zstandard.ZstdCompressor(level=level).compress(body)


def _decompress_zstd(body: bytes | memoryview, max_bytes: int) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        if (own := _own_zstd()) is None:
            raise _missing("zstd", "Zstandard") from error
        return _decompress_own_zstd(own, bytes(body), max_bytes)
    packed = bytes(body)
    try:
        if zstandard.frame_content_size(packed[:32]) > max_bytes:
            raise _too_large(CompressionType.ZSTD, max_bytes)
        decompressed: bytes = zstandard.ZstdDecompressor().decompress(packed, max_output_size=max_bytes)
    except zstandard.ZstdError as error:
        # Java's frames do not declare their size. For them the library raises the same error whether a frame is too
        # large or cut off.
        if _grows_beyond(packed, max_bytes):
            raise _too_large(CompressionType.ZSTD, max_bytes) from error
        raise RecordError(f"a body is marked as Zstandard and cannot be read: {error}") from error
    return decompressed


def _own_zstd() -> Any:
    try:
        return importlib.import_module(OWN_ZSTD)
    except ImportError:
        return None


def _decompress_own_zstd(own: Any, packed: bytes, max_bytes: int) -> bytes:
    stream = own.ZstdDecompressor()
    try:
        decompressed: bytes = stream.decompress(packed, max_bytes + 1)
    except own.ZstdError as error:
        raise RecordError(f"a body is marked as Zstandard and cannot be read: {error}") from error
    if len(decompressed) > max_bytes:
        raise _too_large(CompressionType.ZSTD, max_bytes)
    if not stream.eof:
        raise RecordError("a Zstandard body ends before its frame does")
    return decompressed


def _grows_beyond(packed: bytes, max_bytes: int) -> bool:
    import zstandard

    stream, plain_bytes = zstandard.ZstdDecompressor().decompressobj(), 0
    try:
        for start in range(0, len(packed), ZSTD_PIECE_BYTES):
            plain_bytes += len(stream.decompress(packed[start : start + ZSTD_PIECE_BYTES]))
            if plain_bytes > max_bytes:
                return True
    except zstandard.ZstdError:
        pass
    return False


def _too_large(kind: CompressionType, max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a {kind.name} body grows beyond {max_bytes} bytes", max_bytes=max_bytes)


def _missing(extra: str, name: str) -> MissingLibrary:
    return MissingLibrary(f'{name} bodies need a library that is not installed: pip install "pyrmq-spark[{extra}]"')
