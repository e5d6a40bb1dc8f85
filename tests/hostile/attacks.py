"""Every request with every field wrong in every way: attacks of a stranger, one deviation from a good request each.

The fields of a request are those of the conversations in `pyrmq_core.protocol.requests`, so that a new conversation
is attacked without another line here; a request without one gets the fields that most have.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import islice
from typing import Any

from pyrmq_core.protocol import requests
from pyrmq_core.protocol.framing.codes import RequestCode
from tests.support.stranger import frame

# Fields of requests whose conversations read them otherwise, or that no part of ours sends.
MORE_FIELDS: Mapping[int, str] = {
    RequestCode.SEND_MESSAGE: (
        "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
        "reconsumeTimes unitMode maxReconsumeTimes batch"
    ),
    RequestCode.SEND_MESSAGE_V2: "a b c d e f g h i j k l m n",
    RequestCode.SEND_BATCH_MESSAGE: "a b c d e f g h i j k l m n",
    RequestCode.REGISTER_BROKER: (
        "brokerName brokerAddr clusterName haServerAddr brokerId heartbeatTimeoutMillis enableActingMaster compressed "
        "bodyCrc32"
    ),
    RequestCode.QUERY_DATA_VERSION: "brokerName brokerAddr clusterName brokerId",
    RequestCode.QUERY_MESSAGE: "topic key maxNum beginTimestamp endTimestamp",
    RequestCode.VIEW_MESSAGE_BY_ID: "offset topic",
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "groupName cleanOffset",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "topic group timestamp isForce offset queueId",
}
COMMON = ("topic", "group", "consumerGroup", "producerGroup", "queueId", "offset", "brokerName", "clusterName")
# The values for the names of a good request; messages that must stay are never named.
GOOD = {
    "topic": "T0",
    "b": "T0",
    "defaultTopic": "TBW102",
    "c": "TBW102",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "C0",
    "namespace": "N0",
    "key": "K0",
    "value": "V0",
    "subscription": "*",
    "expressionType": "TAG",
    "clientID": "client",
    "topicFilterType": "SINGLE_TAG",
    "attributes": "",
    "commitOrRollback": "8",
    "i": "",
    "properties": "",
}
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
MISSING = object()
HUGE = "x" * 200_000
# Half a surrogate and a text of 5,000 digits travel as JSON writes them.
VALUES: Mapping[str, object] = {
    "missing": MISSING,
    "empty": "",
    "null": None,
    "huge": HUGE,
    "minus one": "-1",
    "beyond an int": "2147483648",
    "the largest int": "2147483647",
    "the largest long": "9223372036854775807",
    "beyond a long": "9223372036854775808",
    "5,000 digits": "9" * 5000,
    "a bare number of 300 digits": int("9" * 300),
    "a fraction": "1e400",
    "no number": "NaN",
    "digits of another script": "\uff11\uff12",
    "an object": {"a": {"b": ["c"]}},
    "a list": ["a"],
    "true": True,
    "a path": "../../../precious",
    "a path to the log": "../commitlog",
    "an absolute path": "/precious",
    "a zero": "a\0b",
    "line breaks": "a\nERROR made up\r\nb",
    "half a surrogate": "\ud800",
    "separators": "a\x01b\x02c",
    "format": "%s%n{0}",
}
BODIES: Mapping[str, bytes] = {
    "no body": b"",
    "zeros": bytes(64),
    "no JSON": b"\xff\xfe{",
    "an empty object": b"{}",
    "an empty list": b"[]",
    "a number": b"3",
    "deep lists": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "bare names": b"{" + b",".join(b"%d:1" % number for number in range(2_000)) + b"}",
    "numbers for texts": b'{"clientID":3,"consumerDataSet":[{"groupName":7}],"producerDataSet":[1],"mqSet":[2]}',
    "half a surrogate": b'{"clientID":"\\ud800","topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud800":{}}}}',
    "paths": (
        b'{"clientID":"../..","consumerGroup":"../../precious","mqSet":[{"topic":"../x","brokerName":"/",'
        b'"queueId":-1}]}'
    ),
    "a heartbeat of paths": (
        b'{"clientID":"c","producerDataSet":[{"groupName":"../../../precious"}],"consumerDataSet":[{"groupName":'
        b'"../../../precious","subscriptionDataSet":[{"topic":"../commitlog","subString":"*"}]}]}'
    ),
    "huge numbers": b'{"dataVersion":{"counter":1e999,"timestamp":' + b"9" * 400 + b"}}",
    "properties": b"kvConfigPath=/precious\nlistenPort=1\n",
    "a batch that lies": b"\x7f\xff\xff\xff" * 8,
}


@dataclass(frozen=True, slots=True)
class Attack:
    """One frame, and what it is."""

    code: int
    what: str
    data: bytes

    def __str__(self) -> str:
        return f"request {self.code} with {self.what}"


def attacks_of(code: int, share: int = 0, shares: int = 1) -> Iterator[Attack]:
    """Yields the request with one thing wrong at a time: every one, or a share of them."""
    for what, frame_of in islice(_frames_of(code), share % shares, None, shares):
        yield Attack(code, what, frame_of())


def _frames_of(code: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    good = {name: _good(name) for name in _field_names(code)}
    body = b"hello" if code in SENDS else b"{}"
    for name in good:
        for what, value in VALUES.items():
            wrong = {**good, name: value}
            if value is MISSING:
                del wrong[name]
            yield f"{name}: {what}", partial(_request, code, wrong, body)
    for what, wrong_body in BODIES.items():
        yield f"the body: {what}", partial(_request, code, good, wrong_body)
    for what, members in _wrong_headers(code, good).items():
        yield f"the header: {what}", partial(frame, members, body)


def all_codes() -> list[int]:
    """Returns every request code that has a name, and some that have none."""
    return [*sorted(int(code) for code in RequestCode), -1, 0, 9_999, 32_768, 2**31 - 1, 2**31, 10**30]


def _good(name: str) -> object:
    if name in GOOD:
        return GOOD[name]
    if "roup" in name:
        return "G0"
    return "broker-x" if name in ("brokerName", "n", "bname") else "0"


def _request(code: int, members: Mapping[str, object], body: bytes) -> bytes:
    header = {"code": code, "extFields": members, "flag": 0, "language": "JAVA", "opaque": 7, "version": 493}
    return frame(json.dumps(header).encode(), body)


def _wrong_headers(code: int, good: Mapping[str, object]) -> dict[str, bytes]:
    plain = json.dumps({"code": code, "extFields": good, "opaque": 7})
    return {
        "nested below what Python loads": b'{"code":%d,"opaque":7,"extFields":{"a":' % code
        + b"[" * 900
        + b"]" * 900
        + b"}}",
        "nested for ever": b'{"code":%d,"opaque":7,"remark":' % code + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        "a remark that is an object": plain.replace('"opaque"', '"remark":{"a":[1]},"opaque"').encode(),
        "a language that is a list": plain.replace('"opaque"', '"language":[1],"opaque"').encode(),
        "an opaque that is text": plain.replace('"opaque": 7', '"opaque":"x"').encode(),
        "an opaque beyond an int": plain.replace('"opaque": 7', f'"opaque":{2**70}').encode(),
        "a flag beyond an int": plain.replace('"opaque"', f'"flag":{2**40},"opaque"').encode(),
        "a version that is true": plain.replace('"opaque"', '"version":true,"opaque"').encode(),
        "10,000 fields": json.dumps(
            {"code": code, "opaque": 7, "extFields": {**good, **{f"f{number}": "x" for number in range(10_000)}}}
        ).encode(),
    }


def _field_names(code: int) -> list[str]:
    return _FIELDS.get(code) or list(COMMON)


def _fields_of_conversations() -> dict[int, list[str]]:
    field_names: dict[int, list[str]] = {}
    for module in pkgutil.walk_packages(requests.__path__, f"{requests.__name__}."):
        members: dict[str, Any] = vars(importlib.import_module(module.name))
        for value in members.values():
            names = _wire_names(value)
            codes = [code for name in ("CODE", "CODES") for code in _codes(getattr(value, name, None))]
            for code in codes if names else ():
                field_names.setdefault(code, []).extend(name for name in names if name not in field_names.get(code, []))
    field_names[RequestCode.LITE_PULL_MESSAGE] = field_names[RequestCode.PULL_MESSAGE]
    return field_names | {int(code): names.split() for code, names in MORE_FIELDS.items()}


def _wire_names(value: Any) -> list[str]:
    if not (isinstance(value, type) and is_dataclass(value)):
        return []
    return [field.metadata["wire"] for field in fields(value) if "wire" in field.metadata]


def _codes(value: Any) -> list[int]:
    if isinstance(value, int):
        return [int(value)]
    return [int(code) for code in value] if isinstance(value, tuple | list | set | frozenset) else []


_FIELDS = _fields_of_conversations()
