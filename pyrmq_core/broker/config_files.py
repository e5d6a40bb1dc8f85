"""The JSON files under `<store>/config`: written in one step, the previous version kept beside them and read in need.

Source: common/ConfigManager.java (5.4.0): tabs, no blanks, `.bak` read when the file is missing, empty or unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyrmq_core.broker.store.files import Files
from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java_json import load_object

FOLDER: Final = "config"


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
    """The file's text."""
    return json.dumps(members, ensure_ascii=False, indent="\t", separators=(",", ":")).encode()
