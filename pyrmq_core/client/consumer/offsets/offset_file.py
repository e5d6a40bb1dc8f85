"""The file of a broadcasting consumer's offsets, with Java's path and format. Every function here blocks.

The file is `<directory>/<client id>/<group>/offsets.json`, and its previous version has the suffix `.bak`. Java can
read both, except offsets beyond 32 bits (5.4.0). Source: client/consumer/store/LocalFileOffsetStore.java,
common/MixAll.java (string2File).

The keys of the table of offsets are queues. Java's fastjson writes such a key as a JSON object, although JSON requires
a string. This module also reads strings as keys: the text of that object, or of `MessageQueue.toString`, which Jackson
writes. Source: client/consumer/store/OffsetSerializeWrapper.java, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.object_keys import load_key, load_object_keys
from pyrmq_core.protocol.messages.queue_tables import queue_from, queue_members

# MessageQueue.toString: a topic has no comma, a broker name may have commas.
_TO_STRING: Final = re.compile(r"MessageQueue \[topic=([^,]*), brokerName=(.*), queueId=(-?\d{1,10})\]", re.DOTALL)


def load_offset_file(body: bytes, what: str) -> dict[MessageQueue, int]:
    table = load_object_keys(body, what).get("offsetTable") or {}
    if not isinstance(table, dict):
        raise BodyError(f"{what}: offsetTable is not a JSON object")
    try:
        return {_queue_of(name): long_member(offset) for name, offset in table.items()}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BodyError(f"{what}: an entry of offsetTable is not a queue with its offset: {error!r}") from error


def dump_offset_file(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Returns the text of an offset file, indented with tabs as Java 5.4.0 does, with queues in the given order."""
    entries = b",\n".join(_entry(queue, offset) for queue, offset in offsets.items())
    table = b"{\n" + entries + b"\n\t}" if entries else b"{}"
    return b'{\n\t"offsetTable":' + table + b"\n}"


def _entry(queue: MessageQueue, offset: int) -> bytes:
    members = b",\n".join(b"\t\t\t" + dumps(name) + b":" + dumps(value) for name, value in queue_members(queue).items())
    return b"\t\t{\n" + members + b"\n\t\t}:" + dumps(offset)


def _queue_of(name: str) -> MessageQueue:
    if match := _TO_STRING.fullmatch(name):
        return MessageQueue(match[1], match[2], int_member(match[3]))
    return queue_from(load_key(name))


DEFAULT_FOLDER: Final = ".rocketmq_offsets"
FILE_NAME: Final = "offsets.json"
# The first character of an escaped name, for a client id or group that cannot be a folder's name. Java escapes nothing.
ESCAPED: Final = "="


class OffsetFile:
    """The offset file of one broadcasting consumer. If it is missing, empty or damaged, its `.bak` is read instead."""

    def __init__(self, directory: Path | None, client_id: str, group: str) -> None:
        above = _default_folder() if directory is None else directory
        self.path = above / folder_name(client_id) / folder_name(group) / FILE_NAME
        self.backup = self.path.with_name(f"{FILE_NAME}.bak")

    def read(self) -> dict[MessageQueue, int]:
        return self._read()[0]

    def merge(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Writes the offsets of these queues to the file. The offsets of all other queues stay in it.

        Raises `StoreError` if the file cannot be read or written. The old offsets can then still be read.
        """
        present, is_readable = self._read()
        for _ in self.writing({**present, **offsets}, keep_previous=is_readable):
            pass

    def writing(self, offsets: Mapping[MessageQueue, int], *, keep_previous: bool) -> Iterator[str]:
        """Writes the file in steps, and yields the name of each step before it, so that tests can stop there.

        After any step, either the old or the new offsets can be read. `keep_previous` is False for a damaged file,
        which must not replace the backup.
        """
        fresh = self.path.with_name(f"{FILE_NAME}.tmp")
        try:
            yield "make the folders"
            _make_folder(self.path.parent)
            yield "open the new file"
            with fresh.open("wb") as file:
                yield "write it"
                file.write(dump_offset_file(offsets))
                yield "sync it"
                file.flush()
                os.fsync(file.fileno())
            if keep_previous:
                yield "keep the old file"
                self.path.replace(self.backup)
            yield "name the new file"
            fresh.replace(self.path)
            yield "sync the folder"
            _sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(
                f"cannot write the offsets to {self.path}: {error.strerror or error}; check room and rights there"
            ) from error

    def _read(self) -> tuple[dict[MessageQueue, int], bool]:
        reason = ""
        for version in (self.path, self.backup):
            try:
                body = version.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(
                    f"cannot read the offsets in {version}: {error.strerror or error}; check the rights there"
                ) from error
            if body:
                try:
                    return load_offset_file(body, str(version)), version == self.path
                except BodyError as error:
                    reason = str(error)
        if reason:
            raise StoreError(f"{reason}; repair {self.path}, or remove it and its .bak to begin without offsets")
        return {}, False


def folder_name(name: str) -> str:
    """Returns the folder's name for a client id or group: the name itself, as in Java, or an escaped name.

    A name is escaped if it leads out of the folder, has characters that a system may refuse, or looks like an escaped
    name.
    """
    is_plain = name.isprintable() and name not in ("", ".", "..") and not set(name) & {"/", "\\"}
    if is_plain and not name.startswith(ESCAPED):
        return name
    return ESCAPED + quote(name, safe="@#", errors="surrogatepass")


def _default_folder() -> Path:
    try:
        return Path.home() / DEFAULT_FOLDER
    except RuntimeError as error:
        raise InvalidArgument(f"{error}: name a directory for the offsets of a broadcasting consumer") from error


def _make_folder(folder: Path) -> None:
    """Creates a folder and its parents. Syncs each parent to disk, or a power cut could remove the folder."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
