"""Writing a small file so that a crash at any moment leaves the old or the new content, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file; what it held goes to `<file>.bak` first, as Java does (MixAll.string2File).

    Missing folders are made. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _replace(path.with_name(path.name + ".bak"), path.read_bytes())
    _replace(path, content)


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
