"""Requests of a program to the callgrind that runs it: count from here, stop, write what was counted.

Valgrind knows them by a sequence of instructions that does nothing elsewhere (`valgrind.h`, x86-64, Linux). They are
made here as bytes, so that no compiler is needed. Outside the requests callgrind counts nothing, and a program runs
several times as fast: importing pyarrow would else take longer than all cases.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Final

# mov rax, rdi; xor edx, edx; the four rotations by 128 bits together; xchg rbx, rbx; mov rax, rdx; ret
CODE: Final = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
# `callgrind.h`: VG_USERREQ_TOOL_BASE('C', 'T'), and the places in its enumeration.
BASE: Final = ord("C") << 24 | ord("T") << 16
ZERO_STATS, DUMP_STATS_AT, START_INSTRUMENTATION, STOP_INSTRUMENTATION = BASE + 1, BASE + 3, BASE + 4, BASE + 5


class CallgrindRequests:
    """The requests. One does nothing in a process that callgrind does not run."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code.write(CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._call: Callable[[int], int] = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)

    def start(self) -> None:
        self._request(START_INSTRUMENTATION)
        self._request(ZERO_STATS)

    def stop(self, name: str) -> None:
        """Stops counting, and writes the counts under this name into a file of their own."""
        self._request(STOP_INSTRUMENTATION)
        text = ctypes.create_string_buffer(name.encode())
        self._request(DUMP_STATS_AT, ctypes.addressof(text))

    def _request(self, number: int, argument: int = 0) -> None:
        words = (ctypes.c_uint64 * 6)(number, argument)
        self._call(ctypes.addressof(words))
