"""The division of a refused batch into halves, to find the refused message, and a message's change to another topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body, iterate_batch_body
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import (
    DELAY,
    MAX_PROPERTIES_BYTES,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)

DELAYS: Final = (DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)


def halves(payload: Payload) -> tuple[Payload, Payload]:
    items = list(iterate_batch_body(payload.body))
    middle = len(items) // 2
    ids = payload.unique_ids
    return (
        _batch(payload, items[:middle], None if ids is None else ids[:middle]),
        _batch(payload, items[middle:], None if ids is None else ids[middle:]),
    )


def readdressed(payload: Payload, topic: str, properties: Mapping[str, str]) -> Payload:
    """Returns the only message of a payload as a payload for another `topic`, without its delay.

    `properties` are added to the message's own, and replace those of the same names. One that exceeds the limit of a
    message's properties is left out, but the last one of `properties` is shortened to fit.
    """
    body, text, flag = payload.body, payload.properties, payload.flag
    if payload.batch:
        (item,) = iterate_batch_body(payload.body)
        body, text, flag = item.body, decode_java_utf8(bytes(item.properties)), item.flag
    replaced = {*DELAYS, *properties}
    own = {name: value for name, value in decode_properties(text).items() if name not in replaced}
    return Payload(
        topic=topic,
        body=bytes(body),
        count=1,
        properties=encode_properties({**own, **_fitting(properties, own)}),
        sys_flag=payload.sys_flag,
        flag=flag,
        unique_ids=(own[UNIQ_KEY],) if UNIQ_KEY in own else None,
    )


def _fitting(properties: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    room = MAX_PROPERTIES_BYTES - len(encode_properties({**own, **dict.fromkeys(properties, "")}).encode())
    fitting: dict[str, str] = {}
    for number, (name, value) in enumerate(properties.items(), 1):
        encoded = value.encode()
        if len(encoded) > room:
            encoded = encoded[: max(0, room)] if number == len(properties) else b""
        if encoded:
            fitting[name] = encoded.decode(errors="ignore")
            room -= len(encoded)
    return {name: value for name, value in fitting.items() if value}


def _batch(payload: Payload, items: Sequence[BatchItem], unique_ids: Sequence[str] | None) -> Payload:
    return replace(payload, body=encode_batch_body(items), count=len(items), unique_ids=unique_ids)
