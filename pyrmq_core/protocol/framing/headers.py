"""The encoding and decoding of a frame's header in its two formats, JSON and ROCKETMQ (binary).

Sources: remoting/protocol/RemotingSerializable.java (JSON), RocketMQSerializable.java (ROCKETMQ), 5.3.3.

`decode_json` reads two kinds of JSON header by regular expressions, if their keys are in Java's order. It then leaves
the custom fields unparsed (`LazyFields`) until one of them is used. The first kind is the header of a success answer of
up to `LAZY_OVER_BYTES`. The second is a longer header without a remark: the answer to a batch of 1,000 messages has
33 KB of message ids, which a bulk write never reads. All other headers are parsed as JSON.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.command import NO_FIELDS, RESPONSE_BIT, Command, Serialization, make_command
from pyrmq_core.protocol.java.integers import MAX_INT, MIN_INT
from pyrmq_core.protocol.java.json_bounds import check_depth

LAZY_OVER_BYTES: Final = 2048
# The most fields of a header. RocketMQ's longest header class has some thirty.
MAX_FIELDS: Final = 1_000

# The names of client languages. A binary header has the index of one as a byte (remoting/protocol/LanguageCode.java).
LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_NUMBERS: Final = {name: number for number, name in enumerate(LANGUAGES)}

BINARY_START: Final = struct.Struct(
    ">"
    "h"  # code
    "B"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
)
SHORT: Final = struct.Struct(">h")
INT: Final = struct.Struct(">i")

JSON: Final = Serialization.JSON
_RAW_DECODE: Final = json.JSONDecoder().raw_decode
_LAZY_HEAD: Final = re.compile(rb'\{"code":(-?\d{1,6}),"extFields":')
_LAZY_TAIL: Final = re.compile(
    rb'\},"flag":(\d{1,4}),"language":"(\w{1,16})","opaque":(-?\d{1,10}),'
    rb'"serializeTypeCurrentRPC":"JSON","version":(\d{1,6})\}$'
)
# The fields end at the first `}`. The caller then checks that none of them is an object: `[^{}]` would check it here,
# at three times the cost.
_LAZY_ANSWER: Final = re.compile(
    rb'\{"code":0,"extFields":(\{[^}]*\}),"flag":1,"language":"(\w{1,16})","opaque":(-?\d{1,10}),'
    rb'(?:"remark":"(\w*)",)?"serializeTypeCurrentRPC":"JSON","version":(\d{1,6})\}'
)
_LAZY_TAIL_BYTES: Final = 160


class LazyFields(Mapping[str, str]):
    """Custom header fields whose JSON is parsed at the first access. Broken JSON raises `HeaderError` only then."""

    __slots__ = ("_parsed", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._parsed: dict[str, str] | None = None

    def __repr__(self) -> str:
        return repr(self.fields())

    def fields(self) -> dict[str, str]:
        if self._parsed is None:
            self._parsed = _text_fields(_load_object(self.raw))
        return self._parsed

    def __getitem__(self, name: str) -> str:
        return self.fields()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields())

    def __len__(self) -> int:
        return len(self.fields())


def encode_header(command: Command) -> bytes:
    return encode_json(command) if command.serialization is Serialization.JSON else encode_binary(command)


def encode_json(command: Command, opaque: int | None = None, flag: int | None = None) -> bytes:
    """Returns the header as JSON like Java's: keys in Java's order, no spaces, and `?` for a lone surrogate.

    `opaque` and `flag`, if given, replace those of the command, so that the caller need not copy it.
    """
    flag = command.flag if flag is None else flag
    opaque = command.opaque if opaque is None else opaque
    ext = command.ext
    if ext:
        fields = f',"extFields":{_json_fields(ext)}'
    elif flag & RESPONSE_BIT and command.code == 0:
        fields = ',"extFields":{}'  # without it, Java clients fail on some success answers
    else:
        fields = ""
    remark = "" if command.remark is None else f',"remark":{encode_basestring(command.remark)}'
    return (
        f'{{"code":{int(command.code)}{fields},"flag":{flag},"language":{encode_basestring(command.language)},'
        f'"opaque":{opaque}{remark},"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode("utf-8", "replace")


def decode_json(header: bytes, body: bytes | memoryview = b"") -> Command:
    lazy = _decode_lazily(header, body) if len(header) > LAZY_OVER_BYTES else _decode_answer_lazily(header, body)
    if lazy is not None:
        return lazy
    members = _load_object(header)
    language = members.get("language", "JAVA")
    if language.__class__ is not str or language not in LANGUAGE_NUMBERS:
        language = _language(language)
    code, opaque = members.get("code", 0), members.get("opaque", 0)
    flag, version = members.get("flag", 0), members.get("version", 0)
    if not (
        type(code) is type(opaque) is type(flag) is type(version) is int
        and 0 <= code | opaque | flag | version <= MAX_INT
    ):
        _check_numbers(code=code, opaque=opaque, flag=flag, version=version)
    ext, remark = _text_fields(members.get("extFields")), members.get("remark")
    text = None if remark is None else _scalar_text("remark", remark)
    return make_command(code, ext, body, opaque, flag, text, language, version, JSON)


def encode_binary(command: Command, opaque: int | None = None, flag: int | None = None) -> bytes:
    """Returns the header in the binary encoding ROCKETMQ, with `opaque` and `flag` as in `encode_json`.

    Raises `HeaderError` for a value that only JSON can hold, such as a code above 32,767.
    """
    flag = command.flag if flag is None else flag
    opaque = command.opaque if opaque is None else opaque
    try:
        start = BINARY_START.pack(
            command.code,
            LANGUAGE_NUMBERS.get(command.language, LANGUAGE_NUMBERS["OTHER"]),
            command.version,
            opaque,
            flag,
        )
    except struct.error as error:
        raise HeaderError(
            f"the ROCKETMQ header encoding cannot hold code {command.code}, version {command.version}, opaque "
            f"{opaque} or flag {flag}: {error}; use JSON"
        ) from error
    remark = (command.remark or "").encode("utf-8", "replace")
    fields = b"".join(_binary_field(name, value) for name, value in command.ext.items())
    return b"".join((start, INT.pack(len(remark)), remark, INT.pack(len(fields)), fields))


def decode_binary(header: bytes, body: bytes | memoryview = b"") -> Command:
    try:
        code, language, version, opaque, flag = BINARY_START.unpack_from(header)
        remark, position = _binary_text(header, BINARY_START.size, INT)
        (fields_bytes,) = INT.unpack_from(header, position)
        position += INT.size
        if fields_bytes < 0 or position + fields_bytes > len(header):
            raise HeaderError(f"a ROCKETMQ header of {len(header)} bytes declares {fields_bytes} bytes of fields")
        ext = _binary_fields(header, position, position + fields_bytes)
        text, name = remark or None, _language_name(language)
        return make_command(code, ext, body, opaque, flag, text, name, version, Serialization.ROCKETMQ)
    except (struct.error, UnicodeDecodeError) as error:
        raise HeaderError(
            f"a ROCKETMQ header of {len(header)} bytes ends too early or is not UTF-8: {error}"
        ) from error


def _decode_lazily(header: bytes, body: bytes | memoryview) -> Command | None:
    head = _LAZY_HEAD.match(header)
    tail = _LAZY_TAIL.search(header, len(header) - _LAZY_TAIL_BYTES)
    if head is None or tail is None:
        return None
    flag, language, digits, version = tail.groups()
    opaque = int(digits)
    if not MIN_INT <= opaque <= MAX_INT:
        return None
    ext, name = LazyFields(header[head.end() : tail.start() + 1]), language.decode()
    return make_command(int(head[1]), ext, body, opaque, int(flag), None, name, int(version), JSON)


def _json_fields(fields: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{encode_basestring(name)}:{encode_basestring(fields[name])}" for name in fields]) + "}"


def _decode_answer_lazily(header: bytes, body: bytes | memoryview) -> Command | None:
    match = _LAZY_ANSWER.fullmatch(header)
    if match is None:
        return None
    fields, language, digits, remark, version = match.groups()
    opaque = int(digits)
    if fields.rfind(b"{") or not MIN_INT <= opaque <= MAX_INT:
        return None
    text = None if remark is None else remark.decode()
    ext, name = LazyFields(fields), language.decode()
    return make_command(0, ext, body, opaque, RESPONSE_BIT, text, name, int(version), JSON)


def _load_object(header: bytes) -> dict[str, Any]:
    try:
        # Nearly all headers are an object with one object in it, and need no check of their depth.
        is_flat = b"[" not in header and header.find(b"{", 1) == header.rfind(b"{")
        text = header.decode()
        if not is_flat:
            check_depth(text)
        members, end = _RAW_DECODE(text) if text.startswith("{") else (None, -1)
        if end != len(text):  # there are blanks around the object, or it is no JSON
            members = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"a JSON header is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise HeaderError("a JSON header is not an object")
    return members


def _check_numbers(**members: object) -> None:
    for name, value in members.items():
        if type(value) is not int or not MIN_INT <= value <= MAX_INT:
            raise HeaderError(f"a header's {name} is {str(value)[:80]!r}, not a whole number of 32 bits")


def _text_fields(fields: object) -> dict[str, str]:
    """Returns custom header fields as texts, as fastjson does: numbers and booleans become text, null is left out."""
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise HeaderError("a JSON header's extFields is not an object")
    if len(fields) > MAX_FIELDS:
        raise HeaderError(f"a header has {len(fields)} fields; {MAX_FIELDS} at most are read")
    try:
        if "".join(fields.values()).isascii():  # the fastest check that all values are text
            return fields
    except TypeError:
        pass
    return {name: _scalar_text(name, value) for name, value in fields.items() if value is not None}


def _scalar_text(name: str, value: object) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise HeaderError(f"a header's {name[:80]!r} holds half a surrogate, which is no text") from None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise HeaderError(f"a header's {name[:80]!r} is nested; text, number, boolean and null are possible")
    return json.dumps(value)


def _language(value: object) -> str:
    if isinstance(value, int):
        return _language_name(value)
    text = "OTHER" if value is None else _scalar_text("language", value)
    return text if isinstance(value, str) else "OTHER"


def _language_name(number: int) -> str:
    return LANGUAGES[number] if 0 <= number < len(LANGUAGES) else "OTHER"


def _binary_field(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
    if len(name_bytes) > 32_767:
        raise HeaderError(f"a header field's name has {len(name_bytes)} bytes; the ROCKETMQ encoding holds 32,767")
    return b"".join((SHORT.pack(len(name_bytes)), name_bytes, INT.pack(len(value_bytes)), value_bytes))


def _binary_text(header: bytes, position: int, length: struct.Struct) -> tuple[str, int]:
    (size,) = length.unpack_from(header, position)
    start = position + length.size
    if size < 0 or start + size > len(header):
        raise HeaderError(f"a ROCKETMQ header of {len(header)} bytes declares a text of {size} bytes")
    return header[start : start + size].decode(), start + size


def _binary_fields(header: bytes, position: int, end: int) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    left = MAX_FIELDS
    while position < end:
        left -= 1
        if left < 0:
            raise HeaderError(f"a ROCKETMQ header has more than {MAX_FIELDS} fields")
        name, position = _binary_text(header, position, SHORT)
        value, position = _binary_text(header, position, INT)
        if name and value:  # Java reads an empty text as null, and skips null entries
            fields[name] = value
    if position != end:
        raise HeaderError("the fields of a ROCKETMQ header do not end where it says they end")
    return fields or NO_FIELDS
