"""Messages as text: their fields by name, JSON objects, and the rows of a CSV file."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyrmq_core.model import MessageExt
from pyrmq_core.tools.search.json_output import json_text

# The first characters of cells that a spreadsheet computes as formulas.
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def _text(message: MessageExt) -> str:
    return message.body.decode(errors="replace")


# The fields of templates; a None is printed as nothing.
FIELDS: Final[Mapping[str, Callable[[MessageExt], object]]] = {
    "topic": lambda message: message.topic,
    "brokerName": lambda message: message.broker_name,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "msgId": lambda message: message.msg_id,
    "offsetMsgId": lambda message: message.offset_msg_id,
    "tags": lambda message: message.tags,
    "keys": lambda message: message.keys,
    "shardingKey": lambda message: message.sharding_key,
    "flag": lambda message: message.flag,
    "storeTimestamp": lambda message: message.store_timestamp.isoformat(),
    "bornTimestamp": lambda message: message.born_timestamp.isoformat(),
    "bornHost": lambda message: message.born_host,
    "storeHost": lambda message: message.store_host,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "properties": lambda message: json.dumps(dict(message.properties), ensure_ascii=False),
    "bodyBytes": lambda message: len(message.body),
    "body": _text,
}

# The members of a message's JSON object before `body` and `properties`.
JSON_FIELDS: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "shardingKey", "flag"),
    *("storeTimestamp", "reconsumeTimes"),
)
CSV_FIELDS: Final = (*JSON_FIELDS, "properties", "body", "bodyBase64")


def json_line(message: MessageExt) -> str:
    return json_text(members_of(message))


def members_of(message: MessageExt) -> dict[str, Any]:
    """Returns the members of a message's JSON object. A body that is not UTF-8 is also in base 64."""
    members: dict[str, Any] = {name: FIELDS[name](message) for name in JSON_FIELDS}
    members |= {"properties": dict(message.properties), "body": _text(message)}
    if members["body"].encode() != message.body:
        members["bodyBase64"] = base64.b64encode(message.body).decode()
    return members


def json_lines(text: Any) -> Callable[[MessageExt], object]:
    return lambda message: text.write(json_line(message) + "\n")


def csv_rows(text: Any, *, quotes_formulas: bool = False) -> Callable[[MessageExt], object]:
    """Writes the header line of a CSV file to `text`, and returns the function that writes a message as a row.

    With `quotes_formulas` a `'` is put before each cell that a spreadsheet would compute.
    """
    writer = csv.DictWriter(text, CSV_FIELDS, restval="")
    writer.writeheader()

    def write(message: MessageExt) -> None:
        members = members_of(message)
        members["properties"] = json.dumps(members["properties"], ensure_ascii=False)
        if quotes_formulas:
            for name, cell in members.items():
                if isinstance(cell, str) and cell.startswith(FORMULA):
                    members[name] = f"'{cell}"
        writer.writerow(members)

    return write
