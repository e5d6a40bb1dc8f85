"""The JSON files under `<store>/config`. A write replaces a file in one step, and keeps the previous one as `.bak`.

They are indented with tabs, as in common/ConfigManager.java (5.4.0). `.bak` is read if the file is missing, empty or
unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import Any, Final

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.servers.broker.store.disk.files import Files

FOLDER: Final = "config"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def load_config(files: Files, name: str) -> dict[str, Any]:
    """Returns the members of a config file's JSON object, or an empty dict if there is no such file.

    Raises `StoreError` if neither the file nor its `.bak` can be parsed.
    """
    path = f"{FOLDER}/{name}"
    reason = ""
    for version in (path, f"{path}.bak"):
        data = files.load(version)
        if data:
            try:
                return load_object(data, version)
            except BodyError as error:
                reason = str(error)
    if reason:
        raise StoreError(f"{reason}; repair {path}, or remove it and its .bak to begin without it")
    return {}


def save_config(files: Files, name: str, members: Mapping[str, Any]) -> None:
    files.save(f"{FOLDER}/{name}", encode_config(members))


def encode_config(members: Mapping[str, Any]) -> bytes:
    """Returns the JSON text of a config file, with a line for each member and for each row of a table.

    A table is a member whose value is a dict or an iterator of pairs. A lone surrogate becomes `?`, as in Java. Each
    line is encoded separately, which is faster than the encoder's `indent`.
    """
    return _lines(members.items(), 1, _table).encode("utf-8", "replace")


def _table(value: Any) -> str:
    rows = value.items() if isinstance(value, dict) else value
    return _lines(rows, 2, _ENCODE) if isinstance(rows, ItemsView | Iterator) else _ENCODE(value)


def _lines(rows: Iterable[tuple[str, Any]], depth: int, text: Callable[[Any], str]) -> str:
    tabs = "\t" * depth
    lines = ",\n".join([f"{tabs}{_ENCODE(str(name))}:{text(value)}" for name, value in rows])
    return f"{{\n{lines}\n{tabs[1:]}}}" if lines else "{}"
