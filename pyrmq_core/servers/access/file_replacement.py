"""Replaces files atomically: after a crash a file has its old or its new content."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

# The mode of new files with passwords: only the owner may read them.
PRIVATE: Final = 0o600
# The mode of new files without secrets, before the process's umask.
ORDINARY: Final = 0o666


def replace_file(path: Path, content: bytes) -> None:
    """Writes and syncs a new file beside `path`, then renames it to `path`. Raises OSError.

    Missing folders are created. If `path` is a symbolic link, its target is replaced. An existing file keeps its
    permissions, and a new one is readable by its owner only.
    """
    _replace(path.resolve(), content, _permissions(path), PRIVATE)


def replace_keeping_previous(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Copies the file to `<path>.bak`, then replaces it by a synced new file, which gets `mode` if there was none.

    Raises OSError. Source: common/MixAll.java (string2File).
    """
    path, kept = path.resolve(), _permissions(path)
    if kept is not None:
        _replace(path.with_name(path.name + ".bak"), path.read_bytes(), kept, mode)
    _replace(path, content, kept, mode)


def _permissions(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _replace(path: Path, content: bytes, kept: int | None, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    fresh.unlink(missing_ok=True)  # a file left by a crash may have other permissions
    with open(fresh, "xb", opener=partial(os.open, mode=mode if kept is None else PRIVATE)) as file:
        if kept is not None:
            os.fchmod(file.fileno(), kept)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
