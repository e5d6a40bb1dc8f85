"""The body of a broker's registration: its topics with their version, plain JSON or compressed.

The compressed form after decompression; each text is an int32 length and its bytes:

    DataVersion                JSON
    topics                     int32 count, then each `name read write perm filterType attributesJSON`
    filter servers             JSON array
    topic queue mappings       int32 count, then each JSON; only from version 413 (5.0.0) on

Sources: remoting/protocol/body/RegisterBrokerBody.java, TopicConfigAndMappingSerializeWrapper.java,
namesrv/processor/DefaultRequestProcessor.java. Decoding goes in steps, so that a server can do other work between two
of them. The mappings of static topics are passed on as unchanged JSON members.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyrmq_core.errors import BodyError
from pyrmq_core.model import NO_PROPERTIES, TopicConfig
from pyrmq_core.protocol.framing.versions import V5_0_0
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.java.json_text import dumps, parse
from pyrmq_core.protocol.routes.topic_config import (
    NO_VERSION,
    DataVersion,
    queue_count,
    topic_config_from_members,
    topic_config_members,
)
from pyrmq_core.servers.protocol.json_cursor import JsonWalk

T = TypeVar("T")
Steps = Generator[None, None, T]

WHAT: Final = "registration"
TOPICS_PER_STEP: Final = 200
# The most characters of one topic's JSON; a topic takes some 200 with its attributes.
MAX_TOPIC_CHARACTERS: Final = 64 * 1024
INFLATED_BYTES_PER_STEP: Final = 1 << 18
# The most bytes of a decompressed body; far above the size that brokers send (a topic takes about 50 bytes).
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
# Version numbers, as in common/MQVersion.java.
FULL_BODY_VERSION: Final = 37  # V3_0_11: the body has filter servers beside the topics
_INT: Final = struct.Struct(">i")
_READ: Final = frozenset(("filterServerList", "topicQueueMappingInfoMap", "topicConfigTable", "dataVersion"))


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """A broker's topics, as it registers them; `topic_queue_mapping_infos` belong to static topics (5.x)."""

    data_version: DataVersion = NO_VERSION
    topic_configs: tuple[TopicConfig, ...] = ()
    filter_servers: tuple[str, ...] | None = ()
    topic_queue_mapping_infos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Returns the plain form (3.0.11 or later)."""
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
        """Returns the compressed form for a command of this version; 4.9 accepts it only without attributes."""
        texts = [self.data_version.to_json(), _INT.pack(len(self.topic_configs))]
        texts += [_topic_text(config).encode() for config in self.topic_configs]
        texts.append(dumps(list(self.filter_servers or ())))
        if version >= V5_0_0:
            texts.append(_INT.pack(len(self.topic_queue_mapping_infos)))
            texts += [dumps(dict(info)) for info in self.topic_queue_mapping_infos.values()]
        counts = {1, 3 + len(self.topic_configs)}
        parts = (text if place in counts else _INT.pack(len(text)) + text for place, text in enumerate(texts))
        return zlib.compress(b"".join(parts), 9)


def registration_crc(body: bytes | memoryview) -> int:
    """Returns the `bodyCrc32` of a body as sent; a NameServer does not check a value of 0."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes | memoryview, *, version: int, compressed: bool) -> RegistrationBody:
    """Returns the body, decoded without pauses; `BodyError` when it cannot be read."""
    return finished(registration_steps(body, version=version, compressed=compressed))


def registration_steps(body: bytes | memoryview, *, version: int, compressed: bool) -> Steps[RegistrationBody]:
    """Decodes a body in steps of about a millisecond; the generator's return value is the body."""
    if not body:
        return RegistrationBody()
    if compressed and version >= FULL_BODY_VERSION:
        return (yield from _compressed_steps(body, version))
    try:
        walk = JsonWalk(bytes(body).decode(), WHAT)
    except UnicodeDecodeError as error:
        raise BodyError(f"{WHAT}: the body is not UTF-8: {error}") from error
    members: dict[str, Any] = {}
    if version < FULL_BODY_VERSION:
        yield from _wrapper_steps(walk, members)
        members["filterServerList"] = None
    else:
        for count, name in enumerate(walk.members(), 1):
            if name == "topicConfigSerializeWrapper" and walk.is_object():
                yield from _wrapper_steps(walk, members)
            else:
                _keep(members, name, (yield from walk.steps()))
            if count % TOPICS_PER_STEP == 0:
                yield
    return _body(members)


def finished(steps: Steps[T]) -> T:
    """Runs all steps at once and returns their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


# The member that 5.x changes in each registration although nothing else changed.
_RESTAMPED: Final = re.compile(rb'"mappingDataVersion":\{[^{}]{0,200}\},?')
_HEAD_BYTES: Final = 1024


def lasting_parts(body: bytes | memoryview) -> tuple[memoryview, memoryview]:
    """Returns a body without its mappingDataVersion, as two parts; bodies with equal parts have the same content."""
    view = memoryview(body)
    stamp = _RESTAMPED.search(view[:_HEAD_BYTES])
    return (view, view[:0]) if stamp is None else (view[: stamp.start()], view[stamp.end() :])


def _wrapper_steps(walk: JsonWalk, members: dict[str, Any]) -> Steps[None]:
    for count, name in enumerate(walk.members(), 1):
        if name == "topicConfigTable" and walk.is_object():
            members[name] = yield from _topic_steps(walk)
        else:
            _keep(members, name, (yield from walk.steps()))
        if count % TOPICS_PER_STEP == 0:
            yield


def _keep(members: dict[str, Any], name: str, value: Any) -> None:
    """Keeps a member if its name is known and new; unknown members of a peer take no memory."""
    if name in _READ:
        members.setdefault(name, value)


def _topic_steps(walk: JsonWalk) -> Steps[tuple[TopicConfig, ...]]:
    configs = []
    for _ in walk.members():
        start = walk.position
        members = yield from walk.steps()
        if walk.position - start > MAX_TOPIC_CHARACTERS:
            raise BodyError(f"{WHAT}: a topic takes more than {MAX_TOPIC_CHARACTERS} characters")
        configs.append(topic_config_from_members(members))
        if walk.is_due():
            yield
    return tuple(configs)


def _body(members: Mapping[str, Any]) -> RegistrationBody:
    filter_servers = members.get("filterServerList")
    infos = members.get("topicQueueMappingInfoMap") or {}
    configs = members.get("topicConfigTable") or ()
    if not isinstance(configs, tuple):
        raise BodyError(f"{WHAT}: topicConfigTable is not an object")
    if not isinstance(filter_servers, list | None) or not all(
        isinstance(server, str) for server in filter_servers or ()
    ):
        raise BodyError(f"{WHAT}: filterServerList is not a list of addresses")
    if not isinstance(infos, dict) or not all(isinstance(info, dict) for info in infos.values()):
        raise BodyError(f"{WHAT}: topicQueueMappingInfoMap is not an object of objects")
    return RegistrationBody(
        data_version=DataVersion.from_members(members.get("dataVersion") or {}),
        topic_configs=configs,
        filter_servers=None if filter_servers is None else tuple(filter_servers),
        topic_queue_mapping_infos=infos,
    )


def _compressed_steps(body: bytes | memoryview, version: int) -> Steps[RegistrationBody]:
    texts = _Texts((yield from _inflate_steps(body)))
    data_version = DataVersion.from_members((yield from _json_steps(texts.text(), "data version")))
    configs = []
    for _ in range(texts.count()):
        configs.append(_topic_of_text(texts.text().decode(errors="replace")))
        if len(configs) % TOPICS_PER_STEP == 0:
            yield
    filter_servers = yield from _json_steps(texts.text() or b"[]", f"{WHAT}, filter servers")
    infos: dict[str, Any] = {}
    if version >= V5_0_0:
        for count in range(1, texts.count() + 1):
            info = yield from _json_steps(texts.text(), "topic queue mapping")
            if not isinstance(info, dict):
                raise BodyError("topic queue mapping: the body is not a JSON object")
            infos[str(info.get("topic"))] = info
            if count % TOPICS_PER_STEP == 0:
                yield
    return _body(
        {
            "dataVersion": data_version.to_members(),
            "topicConfigTable": tuple(configs),
            "filterServerList": filter_servers,
            "topicQueueMappingInfoMap": infos,
        }
    )


def _json_steps(text: bytes, what: str) -> Steps[Any]:
    try:
        walk = JsonWalk(text.decode(), what)
    except UnicodeDecodeError as error:
        raise BodyError(f"{what}: the body is not UTF-8: {error}") from error
    value = yield from walk.steps()
    walk.end()
    return value


def _inflate_steps(body: bytes | memoryview) -> Steps[bytes]:
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    rest = bytes(body)
    try:
        while rest and not inflater.eof:
            parts.append(inflater.decompress(rest, INFLATED_BYTES_PER_STEP))
            rest = inflater.unconsumed_tail
            size += len(parts[-1])
            if size > MAX_INFLATED_BYTES:
                raise BodyError(f"{WHAT}: {len(body)} compressed bytes swell to more than {MAX_INFLATED_BYTES}")
            yield
    except zlib.error as error:
        raise BodyError(f"{WHAT}: the header says compressed, and the body is no zlib stream: {error}") from error
    if not inflater.eof:
        raise BodyError(f"{WHAT}: the compressed body ends too early")
    return b"".join(parts)


class _Texts:
    """A reader of an inflated body's counts and texts, in order."""

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
    """Returns a topic's text: five parts without attributes, as 4.9 requires, else six."""
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
    """Returns a topic's attributes; none if they are unreadable, as in Java (TopicConfig.decode), or very long."""
    if len(text) > MAX_TOPIC_CHARACTERS:
        return NO_PROPERTIES
    try:
        members = parse(text)
    except (ValueError, RecursionError):
        return NO_PROPERTIES
    if not isinstance(members, dict):
        return NO_PROPERTIES
    return {name: str(value) for name, value in members.items() if value is not None} or NO_PROPERTIES
