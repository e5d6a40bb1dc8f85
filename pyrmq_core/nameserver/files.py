"""Atomic writing of small files: a crash at any moment leaves the old or the new content, never a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file's content; the old content is copied to `<file>.bak` first, as in Java (MixAll.string2File).

    Missing folders are created. The file keeps its permissions. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o666
    if path.exists():
        mode = path.stat().st_mode & 0o777
        _replace(path.with_name(path.name + ".bak"), path.read_bytes(), mode)
    _replace(path, content, mode)


def _replace(path: Path, content: bytes, mode: int) -> None:
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
