"""The body of a broker's registration: its topics with their version, plain JSON or compressed.

The compressed form after decompression, in which each text is an int32 length and its bytes:

    DataVersion                JSON
    topics                     int32 count, then each `name read write perm filterType attributesJSON`
    filter servers             JSON array
    topic queue mappings       int32 count, then each JSON, only from version 413 (5.0.0) on

The topic queue mappings of static topics stay parsed JSON, since this library only passes them on.
Sources: remoting/protocol/body/RegisterBrokerBody.java, TopicConfigAndMappingSerializeWrapper.java,
namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyrmq_core.errors import BodyError
from pyrmq_core.model import NO_PROPERTIES, TopicConfig
from pyrmq_core.protocol.framing.versions import V5_0_0
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.java.json_text import dumps, load_object, loads, parse
from pyrmq_core.protocol.routes.topic_config import (
    NO_VERSION,
    DataVersion,
    queue_count,
    topic_config_from_members,
    topic_config_members,
)

WHAT: Final = "registration"
# The most characters of a topic's attributes. Usual topics have fewer than 200.
MAX_ATTRIBUTES_CHARACTERS: Final = 64 * 1024
# The most bytes of a decompressed body, far more than brokers send: a topic takes about 50 bytes.
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
# Version numbers, as in common/MQVersion.java.
FULL_BODY_VERSION: Final = 37  # V3_0_11: the body has filter servers beside the topics
_INT: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """The topics that a broker registers. `topic_queue_mapping_infos` are for static topics (5.x).

    If `filter_servers` is None, the filter servers of the broker's earlier registration stay valid.
    """

    data_version: DataVersion = NO_VERSION
    topic_configs: tuple[TopicConfig, ...] = ()
    filter_servers: tuple[str, ...] | None = ()
    topic_queue_mapping_infos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Returns the body as uncompressed JSON, as brokers of 3.0.11 or later send it."""
        return dumps(
            {
                "filterServerList": list(self.filter_servers or ()),
                "topicConfigSerializeWrapper": {
                    "dataVersion": self.data_version.to_members(),
                    "mappingDataVersion": NO_VERSION.to_members(),
                    "topicConfigTable": {config.topic: topic_config_members(config) for config in self.topic_configs},
                    "topicQueueMappingDetailMap": {},
                    "topicQueueMappingInfoMap": {
                        topic: dict(info) for topic, info in self.topic_queue_mapping_infos.items()
                    },
                },
            }
        )

    def to_compressed(self, version: int) -> bytes:
        """Returns the compressed body for a command of this version. 4.9 accepts only topics without attributes."""
        texts = [self.data_version.to_json(), _INT.pack(len(self.topic_configs))]
        texts += [_topic_text(config).encode() for config in self.topic_configs]
        texts.append(dumps(list(self.filter_servers or ())))
        if version >= V5_0_0:
            texts.append(_INT.pack(len(self.topic_queue_mapping_infos)))
            texts += [dumps(dict(info)) for info in self.topic_queue_mapping_infos.values()]
        counts = {1, 3 + len(self.topic_configs)}
        parts = (text if index in counts else _INT.pack(len(text)) + text for index, text in enumerate(texts))
        return zlib.compress(b"".join(parts), 9)


def registration_crc(body: bytes | memoryview) -> int:
    """Returns the `bodyCrc32` of a body, which covers the bytes as they are sent."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes | memoryview, *, version: int, compressed: bool) -> RegistrationBody:
    """Returns a registration's decoded body. Raises `BodyError` if it is malformed."""
    if not body:
        return RegistrationBody()
    if compressed and version >= FULL_BODY_VERSION:
        return _decode_compressed(body, version)
    members = load_object(body, WHAT)
    is_full = version >= FULL_BODY_VERSION
    wrapper: Any = (members.get("topicConfigSerializeWrapper") or {}) if is_full else members
    filter_servers = members.get("filterServerList") if is_full else None
    configs = wrapper.get("topicConfigTable") or {} if isinstance(wrapper, dict) else None
    if not isinstance(configs, dict):
        raise BodyError(f"{WHAT}: topicConfigTable is not an object")
    return _body(
        wrapper.get("dataVersion"),
        tuple(map(topic_config_from_members, configs.values())),
        filter_servers,
        wrapper.get("topicQueueMappingInfoMap") or {},
    )


_RESTAMPED: Final = re.compile(rb'"mappingDataVersion":\{[^{}]{0,200}\},?')
_HEAD_BYTES: Final = 1024


def lasting_parts(body: bytes | memoryview) -> tuple[memoryview, memoryview]:
    """Returns the two parts of a JSON body without `mappingDataVersion`, to compare it with an earlier body.

    5.x changes this member in each registration, even if the topics are the same.
    """
    view = memoryview(body)
    stamp = _RESTAMPED.search(view[:_HEAD_BYTES])
    return (view, view[:0]) if stamp is None else (view[: stamp.start()], view[stamp.end() :])


def _body(data_version: Any, configs: tuple[TopicConfig, ...], filter_servers: Any, infos: Any) -> RegistrationBody:
    if not isinstance(filter_servers, list | None) or not all(
        isinstance(server, str) for server in filter_servers or ()
    ):
        raise BodyError(f"{WHAT}: filterServerList is not a list of addresses")
    if not isinstance(infos, dict) or not all(isinstance(info, dict) for info in infos.values()):
        raise BodyError(f"{WHAT}: topicQueueMappingInfoMap is not an object of objects")
    return RegistrationBody(
        data_version=DataVersion.from_members(data_version or {}),
        topic_configs=configs,
        filter_servers=None if filter_servers is None else tuple(filter_servers),
        topic_queue_mapping_infos=infos,
    )


def _decode_compressed(body: bytes | memoryview, version: int) -> RegistrationBody:
    texts = _Texts(_inflated(body))
    data_version = loads(texts.text(), "data version")
    configs = tuple(_topic_of_text(texts.text().decode(errors="replace")) for _ in range(texts.count()))
    filter_servers = loads(texts.text() or b"[]", f"{WHAT}, filter servers")
    infos = {}
    if version >= V5_0_0:
        listed = [load_object(texts.text(), "topic queue mapping") for _ in range(texts.count())]
        infos = {str(info.get("topic")): info for info in listed}
    return _body(data_version, configs, filter_servers, infos)


def _inflated(body: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, MAX_INFLATED_BYTES + 1)
    except zlib.error as error:
        raise BodyError(f"{WHAT}: the header says compressed, and the body is no zlib stream: {error}") from error
    if len(inflated) > MAX_INFLATED_BYTES:
        raise BodyError(f"{WHAT}: {len(body)} compressed bytes swell to more than {MAX_INFLATED_BYTES}")
    if not inflater.eof:
        raise BodyError(f"{WHAT}: the compressed body ends too early")
    return inflated


class _Texts:
    """A reader of a decompressed body's counts and texts, in order."""

    __slots__ = ("_bytes", "_position")

    def __init__(self, inflated: bytes) -> None:
        self._bytes = inflated
        self._position = 0

    def count(self) -> int:
        number = self._number()
        if not 0 <= number <= len(self._bytes) // _INT.size:
            raise BodyError(f"{WHAT}: {len(self._bytes)} inflated bytes declare {number} entries")
        return number

    def text(self) -> bytes:
        size = self._number()
        end = self._position + size
        if size < 0 or end > len(self._bytes):
            raise BodyError(f"{WHAT}: a text of {size} bytes is declared at {self._position} of {len(self._bytes)}")
        text = self._bytes[self._position : end]
        self._position = end
        return text

    def _number(self) -> int:
        try:
            (number,) = _INT.unpack_from(self._bytes, self._position)
        except struct.error as error:
            raise BodyError(f"{WHAT}: the inflated body ends at {self._position}, where a length belongs") from error
        self._position += _INT.size
        return int(number)


def _topic_text(config: TopicConfig) -> str:
    """Returns a topic as five words, or as six with its attributes, which 4.9 does not read."""
    five = (
        f"{config.topic} {config.read_queue_nums} {config.write_queue_nums} {int(config.perm)} "
        f"{config.topic_filter_type}"
    )
    return f"{five} {dumps(dict(config.attributes)).decode()}" if config.attributes else five


def _topic_of_text(text: str) -> TopicConfig:
    parts = text.split(" ", 5)
    try:
        return TopicConfig(
            topic=parts[0],
            read_queue_nums=queue_count(parts[1]),
            write_queue_nums=queue_count(parts[2]),
            perm=parse_int(parts[3]),
            topic_filter_type=parts[4],
            attributes=_attributes(parts[5]) if len(parts) > 5 else NO_PROPERTIES,
        )
    except (IndexError, ValueError) as error:
        raise BodyError(f"{WHAT}: {text[:80]!r} is no topic: {error}") from error


def _attributes(text: str) -> Mapping[str, str]:
    """Returns a topic's attributes, or none if their text is invalid (as in Java) or very long."""
    if len(text) > MAX_ATTRIBUTES_CHARACTERS:
        return NO_PROPERTIES
    try:
        members = parse(text)
    except (ValueError, RecursionError):
        return NO_PROPERTIES
    if not isinstance(members, dict):
        return NO_PROPERTIES
    return {name: str(value) for name, value in members.items() if value is not None} or NO_PROPERTIES
