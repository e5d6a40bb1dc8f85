"""The KV configuration of a NameServer: clients' values by namespace and key, in memory and in a JSON file.

The file is `{"configTable":{namespace:{key:value}}}`, and each save writes the whole table. Unlike Apache's, its size
is limited, since any client may put values. Source: namesrv/kvconfig/KVConfigManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.requests.nameserver.kv_config import KvTable
from pyrmq_core.servers.access.file_replacement import ORDINARY, replace_keeping_previous

# The most bytes of all values: the order configuration of some 60,000 topics, which a single answer contains.
MAX_BYTES: Final = 4 * 1024 * 1024
# The bytes of an entry or a namespace in addition to its texts, so that many short entries are limited, too.
ENTRY_BYTES: Final = 40


class KvConfig:
    """The KV configuration of all namespaces, in the file `path`, or only in memory if `path` is None.

    It is limited to `max_bytes`.
    """

    def __init__(self, path: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.namespaces: dict[str, dict[str, str]] = {}
        self.is_dirty = False
        self._bytes = 0
        self._bodies: dict[str, bytes | memoryview] = {}
        self._turn = trio.Lock()

    def load(self) -> None:
        """Reads the file, if it exists. Raises `StoreError` if its content is invalid."""
        if self.path is None or not self.path.exists():
            return
        try:
            table = load_object(self.path.read_bytes(), "configTable").get("configTable") or {}
            self.namespaces = {
                namespace: {key: str(value) for key, value in values.items() if value is not None}
                for namespace, values in table.items()
            }
        except (OSError, BodyError, AttributeError) as error:
            raise StoreError(f"cannot read the KV configuration in {self.path}: {error}") from error
        self._bodies.clear()
        self._bytes = sum(
            _entry_bytes(namespace) + sum(_entry_bytes(key, value) for key, value in values.items())
            for namespace, values in self.namespaces.items()
        )

    def get(self, namespace: str | None, key: str | None) -> str | None:
        return self.namespaces.get(namespace or "", {}).get(key or "")

    def namespace(self, namespace: str | None) -> Mapping[str, str] | None:
        """Returns the values of a namespace by key, or None if it is unknown. `namespace` None means the name ""."""
        return self.namespaces.get(namespace or "")

    def table_body(self, namespace: str) -> bytes | memoryview | None:
        """Returns the values of a namespace as a response body, which is cached, or None if it is unknown."""
        values = self.namespaces.get(namespace)
        if values is None:
            return None
        body = self._bodies.get(namespace)
        if body is None:
            body = self._bodies[namespace] = KvTable(values).to_command().body
        return body

    def put(self, namespace: str, key: str, value: str | None) -> None:
        """Stores a value. None removes the key, but keeps the namespace.

        Raises `InvalidArgument` if all namespaces, keys and values together would exceed `max_bytes`.
        """
        values = self.namespaces.get(namespace)
        old = None if values is None else values.get(key)
        added = 0 if values is not None else _entry_bytes(namespace)
        added += 0 if value is None else _entry_bytes(key, value)
        added -= 0 if old is None else _entry_bytes(key, old)
        if added > 0 and self._bytes + added > self.max_bytes:
            raise InvalidArgument(
                f"the KV configuration holds {self._bytes} bytes and this adds {added}; {self.max_bytes} at most "
                "(kvConfigMaxBytes). Delete what is not used, or raise the setting"
            )
        if values is None:
            values = self.namespaces[namespace] = {}
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        self._changed(namespace, added)

    def delete(self, namespace: str, key: str) -> None:
        old = self.namespaces.get(namespace, {}).pop(key, None)
        if old is not None:
            self._changed(namespace, -_entry_bytes(key, old))

    def to_json(self) -> bytes:
        # Text that UTF-8 cannot encode is replaced, so that it does not stop the write.
        return dumps({"configTable": self.namespaces})

    def _changed(self, namespace: str, added_bytes: int) -> None:
        self._bytes += added_bytes
        self._bodies.pop(namespace, None)
        self.is_dirty = True

    async def save(self) -> None:
        """Writes the file if anything changed. Raises `StoreError` if that fails, and the next save tries again."""
        async with self._turn:
            if self.path is None or not self.is_dirty:
                return
            self.is_dirty = False
            try:
                write = partial(replace_keeping_previous, self.path, self.to_json(), mode=ORDINARY)
                await trio.to_thread.run_sync(write)
            except OSError as error:
                self.is_dirty = True
                raise StoreError(f"the KV configuration is not written to {self.path}: {error}") from error


def _entry_bytes(*texts: str) -> int:
    return ENTRY_BYTES + sum(len(text.encode("utf-8", "replace")) for text in texts)
