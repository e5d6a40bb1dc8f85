"""Both header encodings: texts that Java's decoders accept, refuse and coerce, and headers that are read on demand."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.framing.frame import SERVER_HEADER_BYTES, FrameDecoder, encode_frame
from pyrmq_core.protocol.framing.headers import (
    LAZY_OVER_BYTES,
    MAX_FIELDS,
    LazyFields,
    decode_binary,
    decode_json,
    encode_binary,
    encode_header,
    encode_json,
)
from tests.protocol.strategies import EXT, commands
from tests.support import golden


def java_batch_answer(count: int, opaque: int = 5) -> bytes:
    """Returns the header of an answer to a batch, members in Java's order."""
    ids = ",".join(f"7F00000100002A9F{offset:016X}" for offset in range(count))
    ext = {"queueId": "1", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "msgId": ids, "queueOffset": "77"}
    members = {
        "code": 0,
        "extFields": ext,
        "flag": 1,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 493,
    }
    return json.dumps(members, separators=(",", ":")).encode()


def test_a_language_is_a_name_or_a_number() -> None:
    assert decode_json(b'{"code":105,"language":"PYTHON","opaque":1}').language == "PYTHON"
    assert decode_json(b'{"code":105,"language":3,"opaque":1}').language == "PYTHON"
    assert decode_json(b'{"code":105,"language":99}').language == "OTHER"
    assert decode_json(b'{"code":105,"language":null}').language == "OTHER"
    assert decode_json(b'{"code":105,"language":"KLINGON","foo":{"x":1}}').language == "KLINGON"
    assert decode_json(b'{"code":105}').language == "JAVA"


def test_fields_become_text_as_fastjson_makes_them() -> None:
    assert decode_json(b'{"code":1,"extFields":{"n":1,"b":true,"s":null,"f":1.5}}').ext == {
        "n": "1",
        "b": "true",
        "f": "1.5",
    }
    assert decode_json(b'{"code":1,"extFields":null}').ext == {}
    assert decode_json(b'{"code":1,"remark":7}').remark == "7"


def test_texts_of_java_are_read() -> None:
    raw = bytes.fromhex(golden.vectors()["remark hex"])
    command = decode_json(raw[8:])
    assert command.remark == '错误 "q" \\ / <b> \u2028 \u0001 tab\t'
    assert command.ext == {"k中": "v中"}
    assert decode_json(encode_json(command)) == command


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b"{",
        b'{"code":"x"}',
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"code":1,"opaque":null}',
        b'{"code":1,"flag":[]}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"x"}',
        b'{"code":1,"remark":"\xff\xfe"}',
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"extFields":' + b"[" * 100_000,
        b'{"extFields":{"a":' + b'{"a":' * 50_000,
    ],
    ids=range(16),
)
def test_a_json_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(HeaderError):
        decode_json(header)


def test_success_without_fields_still_says_that_there_are_none() -> None:
    assert json.loads(encode_json(Command(0, flag=RESPONSE_BIT)))["extFields"] == {}
    assert "extFields" not in json.loads(encode_json(Command(1, flag=RESPONSE_BIT)))
    assert "extFields" not in json.loads(encode_json(Command(0)))


def test_half_a_surrogate_is_written_as_java_writes_it() -> None:
    command = Command(1, {"a": "x\ud800y"}, remark="\udfff")
    assert decode_json(encode_json(command)).ext == {"a": "x?y"}
    assert decode_binary(encode_binary(command)).remark == "?"


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1,"extFields":{"a":"\\ud800"}}',
        b'{"code":1,"extFields":{"a":"\\uDfff","b":2}}',
        b'{"code":1,"remark":"x\\udc00"}',
        b'{"code":1,"language":"\\udc00"}',
        b'{"code":1,"extFields":{"a":"\xed\xa0\x80"}}',
    ],
)
def test_half_a_surrogate_is_refused(header: bytes) -> None:
    """Java writes it as `?`; kept here, it would make every file that contains it impossible to write."""
    with pytest.raises(HeaderError, match=r"surrogate|utf-8"):
        decode_json(header)


def test_a_whole_pair_of_surrogates_is_one_character() -> None:
    assert decode_json(b'{"code":1,"extFields":{"a":"\\ud83d\\ude00"}}').ext == {"a": "\U0001f600"}


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("depth", [1, 2, 40, 900, 100_000])
@pytest.mark.parametrize("place", [b'"extFields":{"a":%s}', b'"remark":%s', b'"language":%s', b'"opaque":%s'])
def test_a_header_is_flat(place: bytes, depth: int) -> None:
    with pytest.raises(HeaderError):
        decode_json(b'{"code":1,' + place % nested(depth) + b"}")
    with pytest.raises(HeaderError):
        decode_json(b'{"code":1,' + place % (b'{"b":' * depth + b"1" + b"}" * depth) + b"}")


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_a_member_that_no_header_has_is_not_nested_deeply_either(depth: int) -> None:
    with pytest.raises(HeaderError, match="nested deeper than 32"):
        decode_json(b'{"code":1,"zoo":' + nested(depth) + b"}")


@pytest.mark.parametrize("value", ["", "a", "\u00e9"])
def test_the_fields_of_a_header_are_bounded(value: str) -> None:
    """A reader looks at each: 27,000 numbers in a quarter of a MiB took 85 ms."""
    most = Command(1, {str(number): value or "1" for number in range(MAX_FIELDS)})
    assert len(decode_json(encode_json(most)).ext) == len(decode_binary(encode_binary(most)).ext) == MAX_FIELDS
    more = Command(1, {**{str(number): value for number in range(MAX_FIELDS)}, "one": value})
    with pytest.raises(HeaderError, match="1001 fields; 1000 at most"):
        dict(decode_json(encode_json(more)).ext)
    with pytest.raises(HeaderError, match="more than 1000 fields"):
        decode_binary(encode_binary(more))


def test_the_longest_properties_of_a_send_fit_into_a_header_that_servers_read() -> None:
    send = Command(10, {"topic": "t" * 127, "producerGroup": "g" * 255, "properties": "\x01" * 32_767})
    decoder = FrameDecoder(max_header_bytes=SERVER_HEADER_BYTES)
    decoder.feed(encode_frame(send))
    assert decoder.next_command() == send


@pytest.mark.parametrize("value", [nested(1), nested(900), b"{}", b'"\\ud800"', b"1" * 5000])
def test_fields_that_are_read_late_are_flat_too(value: bytes) -> None:
    long = b'{"code":310,"extFields":{"a":%s,"b":"%s"},"flag":0,"language":"JAVA","opaque":1,'
    long += b'"serializeTypeCurrentRPC":"JSON","version":479}'
    command = decode_json(long % (value, b"x" * LAZY_OVER_BYTES))
    assert type(command.ext) is LazyFields
    with pytest.raises(HeaderError):
        dict(command.ext)
    for write in (encode_json, encode_binary):
        with pytest.raises(HeaderError):
            write(command)


def test_brackets_inside_of_text_are_text() -> None:
    text = '{"a":[{"b":[' * 50
    assert decode_json(encode_json(Command(1, {"i": text}))).ext == {"i": text}


@pytest.mark.parametrize("member", ["code", "opaque", "flag", "version"])
def test_a_headers_numbers_have_32_bits(member: str) -> None:
    for value in (2**31, -(2**31) - 1, 10**4000):
        with pytest.raises(HeaderError, match=f"{member} is .* 32 bits|not JSON"):
            decode_json(f'{{"{member}":{value}}}'.encode())
    assert getattr(decode_json(f'{{"{member}":-2147483648}}'.encode()), member) == -(2**31)


def test_numbers_beyond_the_binary_encoding_are_refused() -> None:
    with pytest.raises(HeaderError, match=r"cannot hold code 200050.*use JSON"):
        encode_binary(Command(200050))
    with pytest.raises(HeaderError, match="opaque"):
        encode_binary(Command(1, opaque=2**31))
    assert decode_json(encode_json(Command(200050))).code == 200050


def test_a_name_longer_than_its_length_field_is_refused() -> None:
    with pytest.raises(HeaderError, match=r"32768 bytes"):
        encode_binary(Command(1, {"x" * 32_768: "1"}))


def test_an_unknown_language_travels_as_other() -> None:
    assert decode_binary(encode_binary(Command(1, language="KLINGON"))).language == "OTHER"
    header = bytearray(encode_binary(Command(1)))
    header[2] = 200
    assert decode_binary(bytes(header)).language == "OTHER"


BINARY = encode_binary(Command(17, {"topic": "T", "k": "v"}, remark="why"))


@pytest.mark.parametrize("cut", range(len(BINARY)))
def test_a_binary_header_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(HeaderError):
        decode_binary(BINARY[:cut])


@pytest.mark.parametrize("position", [13, 20, 24])
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1000])
def test_a_binary_length_that_lies_is_refused(position: int, length: int) -> None:
    """13 is the remark's length, 20 the fields', 24 covers the first name's and more."""
    header = bytearray(BINARY)
    struct.pack_into(">i", header, position, length)
    with pytest.raises(HeaderError):
        decode_binary(bytes(header))


@pytest.mark.parametrize(
    "fields",
    [
        b"\0\1a" + struct.pack(">i", -7),  # back to its own name: read so, it would never end
        b"\0\1a" + struct.pack(">i", 1),  # one byte more than there is
        b"\0\5abc",
        b"\0",
        struct.pack(">h", -2) + b"ab",
    ],
)
def test_fields_that_do_not_fill_their_length_are_refused(fields: bytes) -> None:
    start = encode_binary(Command(1))[:-4]
    with pytest.raises(HeaderError):
        decode_binary(start + struct.pack(">i", len(fields)) + fields)


def test_a_field_that_reaches_beyond_the_fields_is_refused() -> None:
    start = encode_binary(Command(1))[:-4]
    entry = b"\0\1a" + struct.pack(">i", 1) + b"v"
    assert decode_binary(start + struct.pack(">i", len(entry)) + entry).ext == {"a": "v"}
    with pytest.raises(HeaderError, match="do not end where it says they end"):
        decode_binary(start + struct.pack(">i", len(entry) - 1) + entry)


@given(commands(Serialization.JSON))
def test_json_headers_survive(command: Command) -> None:
    assert decode_json(encode_header(command), command.body) == command


@given(commands(Serialization.ROCKETMQ))
def test_binary_headers_survive_but_for_empty_texts(command: Command) -> None:
    decoded = decode_binary(encode_header(command), command.body)
    assert dict(decoded.ext) == {name: text for name, text in command.ext.items() if text}
    assert (decoded.code, decoded.opaque, decoded.flag, decoded.remark) == (
        command.code,
        command.opaque,
        command.flag,
        command.remark,
    )
    assert (decoded.language, decoded.version, decoded.body) == (command.language, command.version, command.body)


@given(st.binary(max_size=100))
def test_garbage_gives_header_errors_only(garbage: bytes) -> None:
    for decode in (decode_json, decode_binary):
        with contextlib.suppress(HeaderError):
            decode(garbage)


def test_the_answer_to_a_large_batch_is_not_parsed_until_asked() -> None:
    header = java_batch_answer(1000)
    assert len(header) > 33_000
    command = decode_json(header)
    assert isinstance(command.ext, LazyFields)
    assert (command.code, command.opaque, command.flag, command.version) == (0, 5, RESPONSE_BIT, 493)
    assert command.ext._parsed is None
    assert command.ext["queueOffset"] == "77"
    assert len(command.ext["msgId"].split(",")) == 1000
    assert command.ext.get("nothing") is None
    assert dict(command.ext) == json.loads(header)["extFields"]
    assert set(command.ext) == {"queueId", "TRACE_ON", "MSG_REGION", "msgId", "queueOffset"}
    assert len(command.ext) == 5


def test_a_small_answer_is_not_parsed_until_asked_either() -> None:
    header = java_batch_answer(2)
    command = decode_json(header, b"body")
    assert isinstance(command.ext, LazyFields)
    assert (command.code, command.opaque, command.flag, command.version) == (0, 5, RESPONSE_BIT, 493)
    assert (command.language, command.body, command.remark) == ("JAVA", b"body", None)
    assert repr(command.ext) == repr(json.loads(header)["extFields"])


@pytest.mark.parametrize("opaque", [2**31, -(2**31) - 1, 9_999_999_999, -9_999_999_999])
@pytest.mark.parametrize("count", [2, 1000])
def test_an_answer_with_an_opaque_beyond_32_bits_is_refused(count: int, opaque: int) -> None:
    with pytest.raises(HeaderError, match=r"opaque is .* not a whole number of 32 bits"):
        decode_json(java_batch_answer(count, opaque))


def test_small_requests_and_refusals_are_parsed_at_once() -> None:
    for header in (
        java_batch_answer(2).replace(b'"flag":1', b'"flag":0'),
        java_batch_answer(2).replace(b'"code":0', b'"code":1'),
    ):
        assert not isinstance(decode_json(header).ext, LazyFields)


@pytest.mark.parametrize("text", ["{", "}", "{}", "}{", '"},"flag":1', "a{b"])
def test_a_small_answer_with_braces_in_a_text_is_parsed_at_once(text: str) -> None:
    header = encode_json(Command(0, {"msgId": text}, flag=RESPONSE_BIT, language="JAVA"))
    command = decode_json(header)
    assert not isinstance(command.ext, LazyFields)
    assert command.ext == {"msgId": text}


def test_a_small_answer_whose_fields_do_not_end_is_refused_at_once() -> None:
    header = java_batch_answer(2).replace(b'"queueOffset":', b'"nested":{"queueOffset":')
    with pytest.raises(HeaderError, match="not JSON"):
        decode_json(header)


@given(
    EXT,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(["", '},"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":1}']),
)
def test_lazy_and_plain_reading_agree(ext: dict[str, str], opaque: int, filler: str) -> None:
    padded = {**ext, "pad": "x" * LAZY_OVER_BYTES + filler}
    command = Command(0, padded, opaque=opaque, flag=RESPONSE_BIT)
    decoded = decode_json(encode_json(command))
    assert decoded == command
    assert decoded.ext == padded
    assert encode_json(decoded) == encode_json(command)


def test_a_long_header_with_a_remark_is_parsed_at_once() -> None:
    command = Command(1, {"pad": "x" * LAZY_OVER_BYTES}, flag=RESPONSE_BIT, remark="why")
    assert decode_json(encode_json(command)) == command


def test_broken_lazy_fields_are_reported_when_read() -> None:
    header = java_batch_answer(100).replace(b'"queueOffset"', b"queueOffset")
    command = decode_json(header)
    with pytest.raises(HeaderError, match="not JSON"):
        command.ext.get("queueOffset")
