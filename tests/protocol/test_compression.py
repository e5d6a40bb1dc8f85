"""Compressed bodies: Java's three forms, bombs, cuts and missing libraries."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tracemalloc
import types
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyTooLarge, MissingLibrary, RecordError
from pyrmq_core.protocol.messages.compression import CompressionType, compress, decompress
from pyrmq_core.protocol.messages.sysflag import SysFlag
from tests.protocol.strategies import KINDS
from tests.support import golden

ALPHABET = (b"abcdefghijklmnopqrstuvwxyz" * 200)[:5000]
LIMIT = 1 << 20


@pytest.mark.parametrize(("name", "kind"), [("zlib", 3), ("zlib", 0), ("lz4", 1), ("zstd", 2)])
def test_javas_bytes_are_read(name: str, kind: int) -> None:
    body = bytes.fromhex(golden.vector(f"{name} len"))
    assert decompress(body, 1 | kind << 8, max_bytes=LIMIT) == ALPHABET


def test_our_zlib_is_javas_to_the_byte() -> None:
    assert compress(ALPHABET, CompressionType.ZLIB).hex() == golden.vector("zlib len")


@pytest.mark.parametrize(("kind", "flag"), [("ZLIB", 769), ("LZ4", 257), ("ZSTD", 513)])
def test_sys_flags(kind: str, flag: int) -> None:
    assert CompressionType[kind].sys_flag == flag
    assert CompressionType[kind].sys_flag == SysFlag.COMPRESSED | SysFlag[kind]


@given(st.binary(max_size=2000), KINDS, st.integers(1, 9))
def test_bodies_survive(body: bytes, kind: CompressionType, level: int) -> None:
    compressed = compress(body, kind, level)
    assert decompress(compressed, kind.sys_flag, max_bytes=len(body)) == body
    assert decompress(memoryview(compressed), kind.sys_flag, max_bytes=2000) == body
    assert compress(memoryview(body), kind, level) == compressed


def test_a_plain_body_is_left_alone() -> None:
    assert decompress(b"plain", 0x300, max_bytes=1) == b"plain"


@pytest.mark.parametrize("kind", CompressionType)
def test_the_limit_is_a_limit(kind: CompressionType) -> None:
    compressed = compress(bytes(1000), kind)
    assert decompress(compressed, kind.sys_flag, max_bytes=1000) == bytes(1000)
    with pytest.raises(RecordError, match="beyond 999 bytes"):
        decompress(compressed, kind.sys_flag, max_bytes=999)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_bomb_does_not_go_off(kind: CompressionType) -> None:
    bomb = compress(bytes(100 << 20), kind)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="beyond 1048576 bytes"):
            decompress(bomb, kind.sys_flag, max_bytes=LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()


def test_a_zstandard_frame_that_hides_its_size_is_bounded_too() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    bomb = stream.compress(bytes(100 << 20)) + stream.flush()
    with pytest.raises(RecordError, match="beyond 1048576 bytes"):
        decompress(bomb, CompressionType.ZSTD.sys_flag, max_bytes=LIMIT)
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    small = stream.compress(ALPHABET) + stream.flush()
    assert decompress(small, CompressionType.ZSTD.sys_flag, max_bytes=LIMIT) == ALPHABET


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_cut_off_anywhere_is_reported(kind: CompressionType) -> None:
    compressed = compress(ALPHABET, kind)
    # LZ4's frames end with a mark of four zeros, zlib's with a checksum: not one byte may be missing.
    for cut in range(len(compressed)):
        with pytest.raises(RecordError):
            decompress(compressed[:cut], kind.sys_flag, max_bytes=LIMIT)


def test_bytes_behind_the_stream_are_left_alone_as_in_java() -> None:
    assert decompress(zlib.compress(b"x") + b"tail", 769, max_bytes=10) == b"x"


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_unknown_type_is_reported(number: int) -> None:
    with pytest.raises(RecordError, match=f"compression type {number} is unknown"):
        decompress(b"x", 1 | number << 8, max_bytes=10)


@given(st.binary(max_size=100), KINDS)
def test_garbage_gives_record_errors_only(garbage: bytes, kind: CompressionType) -> None:
    with contextlib.suppress(RecordError):
        decompress(garbage, kind.sys_flag, max_bytes=1000)


@given(st.data(), KINDS)
def test_flipped_bits_give_record_errors_only(data: st.DataObject, kind: CompressionType) -> None:
    raw = bytearray(compress(ALPHABET, kind))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(RecordError):
        assert len(decompress(bytes(raw), kind.sys_flag, max_bytes=LIMIT)) <= LIMIT


@pytest.mark.parametrize(("module", "kind", "extra"), [("lz4.frame", "LZ4", "lz4"), ("zstandard", "ZSTD", "zstd")])
def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, kind: str, extra: str
) -> None:
    compressed = compress(b"x", CompressionType[kind])
    monkeypatch.setitem(sys.modules, module, None)
    expected = rf'pip install "pyrmq-spark\[{extra}\]"'
    with pytest.raises(MissingLibrary, match=expected):
        compress(b"x", CompressionType[kind])
    with pytest.raises(MissingLibrary, match=expected):
        CompressionType[kind].check_library()
    with pytest.raises(MissingLibrary, match=expected):
        decompress(compressed, CompressionType[kind].sys_flag, max_bytes=10)


class StandardZstd(types.ModuleType):
    """Stands for `compression.zstd` of Python 3.14: its names, made of the library."""

    ZstdError = zstandard.ZstdError

    class ZstdDecompressor:
        def __init__(self) -> None:
            self._stream = zstandard.ZstdDecompressor().decompressobj()
            self.eof = False

        def decompress(self, data: bytes, max_length: int = -1) -> bytes:
            plain = self._stream.decompress(data)
            self.eof = self._stream.eof
            return plain if max_length < 0 else plain[:max_length]

    @staticmethod
    def compress(data: bytes, level: int) -> bytes:
        return zstandard.ZstdCompressor(level=level).compress(data)


@pytest.fixture
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("compression") is None:  # before 3.14
        own = StandardZstd("compression.zstd")
        monkeypatch.setitem(sys.modules, "compression", types.ModuleType("compression"))
        monkeypatch.setitem(sys.modules, "compression.zstd", own)
    monkeypatch.setitem(sys.modules, "zstandard", None)


def test_pythons_own_zstandard_serves_without_the_library(without_the_library: None) -> None:
    kind = CompressionType.ZSTD
    kind.check_library()
    plain = b"tea " * 10_000
    packed = compress(plain, kind)
    assert len(packed) < len(plain) / 10
    assert decompress(packed, kind.sys_flag, max_bytes=len(plain)) == plain
    with pytest.raises(BodyTooLarge, match="ZSTD body grows beyond 39999 bytes"):
        decompress(packed, kind.sys_flag, max_bytes=len(plain) - 1)
    with pytest.raises(RecordError, match="ends before its frame does"):
        decompress(packed[:-3], kind.sys_flag, max_bytes=len(plain))
    with pytest.raises(RecordError, match="marked as Zstandard and cannot be read"):
        decompress(b"no frame at all", kind.sys_flag, max_bytes=100)
