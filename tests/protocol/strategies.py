"""Strategies for hypothesis: texts, properties, hosts, records, commands and messages as RocketMQ allows them."""

from __future__ import annotations

import ipaddress
from typing import Any

from hypothesis import strategies as st

from pyrmq_core.model import KEPT_NAMES, Message
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.headers import LANGUAGES
from pyrmq_core.protocol.messages.batch import BatchItem
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.properties import SHARDING_KEY

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SOME_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
# Property names and values hold no separators.
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=30)
NAMES = PLAIN.filter(lambda name: name not in KEPT_NAMES | {SHARDING_KEY})
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=6)
TOPICS = st.text("abcXYZ019_-%|", min_size=1, max_size=127)
BODIES = st.binary(min_size=1, max_size=300)
IPS = st.ip_addresses(v=4) | st.ip_addresses(v=6)
PORTS = st.integers(0, 65535)
EXT = st.dictionaries(SOME_TEXT, TEXT, max_size=6)
KINDS = st.sampled_from(CompressionType)


def host_text(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


HOSTS = st.builds(host_text, IPS, PORTS)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Returns the arguments of `encode_record`; topics of both record versions."""
    return {
        "topic": draw(TOPICS | st.text("abc%", min_size=100, max_size=300) | st.just("")),
        "queue_id": draw(INT32),
        "queue_offset": draw(INT64),
        "commit_log_offset": draw(INT64),
        "body": draw(st.binary(max_size=200)),
        "properties": draw(TEXT),
        "born_timestamp_ms": draw(INT64),
        "born_host": draw(HOSTS),
        "store_timestamp_ms": draw(INT64),
        "store_host": draw(HOSTS),
        "flag": draw(INT32),
        "sys_flag": draw(st.integers(0, 0x7FF)),
        "reconsume_times": draw(INT32),
        "prepared_transaction_offset": draw(INT64),
    }


BATCH_ITEMS = st.lists(st.builds(BatchItem, INT32, st.binary(max_size=60), st.binary(max_size=60)), max_size=8)


def commands(serialization: Serialization, ext: st.SearchStrategy[dict[str, str]] = EXT) -> st.SearchStrategy[Command]:
    """Commands that the given header encoding can hold."""
    number = st.integers(-(2**15), 2**15 - 1) if serialization is Serialization.ROCKETMQ else INT32
    return st.builds(
        Command,
        code=number,
        ext=ext,
        body=st.binary(max_size=80),
        opaque=INT32,
        flag=INT32,
        remark=st.none() | SOME_TEXT,
        language=st.sampled_from(LANGUAGES),
        version=number,
        serialization=st.just(serialization),
    )


MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    body=BODIES,
    tags=st.none() | PLAIN,
    keys=st.none()
    | PLAIN.filter(lambda keys: bool(keys.strip(" ")))
    | st.lists(PLAIN.filter(lambda key: " " not in key), max_size=3),
    sharding_key=st.none() | PLAIN,
    properties=st.dictionaries(NAMES, PLAIN, max_size=3),
    flag=INT32,
    wait_store_msg_ok=st.booleans(),
)
