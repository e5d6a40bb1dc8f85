"""The JSON files under `<store>/config`: written in one step, the previous version kept beside them and read in need.

Source: common/ConfigManager.java (5.4.0): tabs, no blanks (Java breaks more lines), `.bak` read when the file is
missing, empty or unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyrmq_core.broker.store.files import Files
from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.json_text import load_object

FOLDER: Final = "config"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def load_config(files: Files, name: str) -> dict[str, Any]:
    """The file's members; empty when there is none. `StoreError` when neither version can be read."""
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
    """`StoreError` when it cannot be written."""
    files.save(f"{FOLDER}/{name}", encode_config(members))


def encode_config(members: Mapping[str, Any]) -> bytes:
    """The file's text, a line for each member and for each entry of a table.

    Half a surrogate becomes `?`, as in Java, so that one entry never keeps others from the file. Each line is one call
    of the encoder: its own form with lines takes twice as long, and one call for all would keep the loop's thread out.
    """
    tables = {
        name: _lines(value, 2, _ENCODE) if isinstance(value, dict) else _ENCODE(value)
        for name, value in members.items()
    }
    return _lines(tables, 1, str).encode("utf-8", "replace")


def _lines(members: Mapping[str, Any], depth: int, text: Callable[[Any], str]) -> str:
    if not members:
        return "{}"
    tabs = "\t" * depth
    lines = ",\n".join([f"{tabs}{_ENCODE(str(name))}:{text(value)}" for name, value in members.items()])
    return f"{{\n{lines}\n{tabs[1:]}}}"
