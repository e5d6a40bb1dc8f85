"""The KV configuration a NameServer keeps for others: values by namespace and key, in memory and in one JSON file.

Source: namesrv/kvconfig/KVConfigManager.java. The file is `{"configTable":{namespace:{key:value}}}` and is written
whole at every change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import trio

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.nameserver.files import write_atomically
from pyrmq_core.protocol.java_json import load_object


class KvConfig:
    """All namespaces; `path` None keeps them in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.namespaces: dict[str, dict[str, str]] = {}
        self.is_dirty = False
        self._turn = trio.Lock()

    def load(self) -> None:
        """Reads the file, if there is one; `StoreError` when it holds no KV configuration."""
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

    def get(self, namespace: str | None, key: str | None) -> str | None:
        return self.namespaces.get(namespace or "", {}).get(key or "")

    def namespace(self, namespace: str | None) -> Mapping[str, str] | None:
        """None when nothing was ever put into it; one that was emptied stays."""
        return self.namespaces.get(namespace or "")

    def put(self, namespace: str, key: str, value: str | None) -> None:
        """No value takes the key away and keeps the namespace."""
        values = self.namespaces.setdefault(namespace, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        self.is_dirty = True

    def delete(self, namespace: str, key: str) -> None:
        if self.namespaces.get(namespace, {}).pop(key, None) is not None:
            self.is_dirty = True

    def to_json(self) -> bytes:
        return json.dumps({"configTable": self.namespaces}, ensure_ascii=False, separators=(",", ":")).encode()

    async def save(self) -> None:
        """Writes what changed since the last time; `StoreError` when that fails, and the next save tries again."""
        async with self._turn:
            if self.path is None or not self.is_dirty:
                return
            self.is_dirty = False
            try:
                await trio.to_thread.run_sync(write_atomically, self.path, self.to_json())
            except OSError as error:
                self.is_dirty = True
                raise StoreError(f"the KV configuration is not written to {self.path}: {error}") from error
