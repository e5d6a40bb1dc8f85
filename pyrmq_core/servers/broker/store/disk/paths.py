"""Checks the paths of the store's files, so that none leads out of the store's folders.

The broker has already checked the names in requests by RocketMQ's rules. This is a second check, for all files. It
allows more names, since another broker may have created the folder.
"""

from __future__ import annotations

from typing import Final

from pyrmq_core.errors import StoreError

SEPARATORS: Final = ("/", "\\")
MAX_QUEUE_ID: Final = 0x7FFFFFFF
# The longest name that file systems allow.
MAX_NAME_BYTES: Final = 255


class UnsafePath(StoreError):
    """Raised for a path that would lead out of the store's folders. Nothing was changed."""


def check_name(name: str) -> str:
    """Returns the name unchanged. Raises `UnsafePath` if it is not safe as the name of a file or folder."""
    if not _is_plain(name):
        raise UnsafePath(f"{name[:128]!r} cannot be the name of a file or folder of the store")
    return name


def check_path(path: str) -> str:
    """Returns the path unchanged. Raises `UnsafePath` unless it is relative and consists of safe names."""
    if not all(_is_plain(name) for name in path.split("/")):
        raise UnsafePath(f"{path[:128]!r} leads out of the store's folder, or is no plain path")
    return path


def queue_folder(topic: str, queue_id: int) -> str:
    if not 0 <= queue_id <= MAX_QUEUE_ID:
        raise UnsafePath(f"{queue_id} cannot be the id of a queue of {topic[:64]!r}")
    return f"{check_name(topic)}/{queue_id}"


def queue_number(name: str) -> int | None:
    """Returns the queue id in a folder's name, or None for a folder that is not a queue's."""
    if not (name.isascii() and name.isdigit()) or len(name) > len(str(MAX_QUEUE_ID)):
        return None
    return int(name) if str(int(name)) == name and int(name) <= MAX_QUEUE_ID else None


def _is_plain(name: str) -> bool:
    # `isprintable` is False for half surrogates, NUL, line breaks and control characters.
    if name in ("", ".", "..") or not name.isprintable() or any(sign in name for sign in SEPARATORS):
        return False
    return len(name.encode()) <= MAX_NAME_BYTES
