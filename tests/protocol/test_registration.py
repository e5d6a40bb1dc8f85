"""Registration bodies: Java's bytes, both forms both ways, steps, bombs and lies."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, ProtocolError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, DataVersion, TopicConfigTable
from pyrmq_core.servers.protocol.registration import (
    MAX_INFLATED_BYTES,
    RegistrationBody,
    decode_registration,
    lasting_parts,
    registration_crc,
)
from tests.protocol.strategies import TEXT

GOLDEN = Path(__file__).parent.parent / "golden" / "vectors_java.txt"
LINES = GOLDEN.read_text().splitlines()
PLAIN = LINES[next(i for i, line in enumerate(LINES) if line.startswith("## regbody plain")) + 1].encode()
COMPRESSED = bytes.fromhex(
    LINES[next(i for i, line in enumerate(LINES) if line.startswith("## regbody compressed")) + 1]
)
INFLATED = bytes.fromhex(LINES[next(i for i, line in enumerate(LINES) if line.startswith("## regbody inflated")) + 1])
JAVAS = RegistrationBody(DataVersion(1_700_000_000_000, 3, 0), (TopicConfig("TopicTest", 4, 4, 6),))

NUMBERS = st.integers(0, 2**31 - 1)
QUEUES = st.integers(0, MAX_QUEUES_PER_TOPIC)
NAMES = st.text("abcXYZ019_-%|", min_size=1, max_size=40)
CONFIGS = st.builds(
    TopicConfig,
    NAMES,
    QUEUES,
    QUEUES,
    st.integers(0, 15),
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    NUMBERS,
    st.booleans(),
    st.dictionaries(TEXT, TEXT, max_size=2),
)
INFOS = st.dictionaries(NAMES, st.fixed_dictionaries({"bname": NAMES, "epoch": NUMBERS}), max_size=2)
BODIES = st.builds(
    RegistrationBody,
    st.builds(DataVersion, NUMBERS, NUMBERS, NUMBERS),
    st.lists(CONFIGS, max_size=5, unique_by=lambda config: config.topic).map(tuple),
    st.lists(TEXT, max_size=2).map(tuple),
    INFOS.map(lambda infos: {topic: {**info, "topic": topic} for topic, info in infos.items()}),
)


def test_javas_plain_body() -> None:
    assert registration_crc(PLAIN) == 1308328594
    assert decode_registration(PLAIN, version=479, compressed=False) == JAVAS
    ours = JAVAS.to_json().replace(b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0}', b"")
    assert ours == b"".join(lasting_parts(PLAIN)).replace(b'},"topicConfigTable"', b'},,"topicConfigTable"')


def test_javas_compressed_body() -> None:
    assert registration_crc(COMPRESSED) == 2117459578
    assert zlib.decompress(COMPRESSED) == INFLATED
    assert decode_registration(COMPRESSED, version=479, compressed=True) == JAVAS


@given(BODIES)
def test_plain_body_survives(body: RegistrationBody) -> None:
    assert decode_registration(body.to_json(), version=479, compressed=False) == body


@given(BODIES, st.sampled_from([407, 479]))
def test_compressed_body_loses_system_flag_and_order_only(body: RegistrationBody, version: int) -> None:
    got = decode_registration(body.to_compressed(version), version=version, compressed=True)
    kept = tuple(
        TopicConfig(
            topic=config.topic,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            attributes=config.attributes,
        )
        for config in body.topic_configs
    )
    infos = body.topic_queue_mapping_infos if version >= 413 else {}
    assert got == RegistrationBody(body.data_version, kept, body.filter_servers, infos)


def test_topics_without_attributes_have_the_five_parts_that_4_9_wants() -> None:
    inflated = zlib.decompress(JAVAS.to_compressed(407))
    assert b"TopicTest 4 4 6 SINGLE_TAG" in inflated
    assert b"SINGLE_TAG {}" not in inflated


def test_5_x_without_mapping_count_is_refused_and_what_follows_the_end_is_ignored() -> None:
    with pytest.raises(BodyError, match="where a length belongs"):
        decode_registration(zlib.compress(INFLATED[:-4]), version=479, compressed=True)
    old = RegistrationBody(JAVAS.data_version, JAVAS.topic_configs)
    assert decode_registration(zlib.compress(INFLATED[:-4]), version=401, compressed=True) == old
    assert decode_registration(zlib.compress(INFLATED + b"rest"), version=479, compressed=True) == JAVAS


def test_brokers_before_3_0_11_send_the_topics_alone() -> None:
    wrapper = TopicConfigTable.of(JAVAS.data_version, JAVAS.topic_configs).to_json()
    got = decode_registration(wrapper, version=36, compressed=False)
    assert (got.topic_configs, got.data_version, got.filter_servers) == (JAVAS.topic_configs, JAVAS.data_version, None)


def test_4_x_without_state_version_attributes_and_mappings() -> None:
    body = b"""{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":5},
        "topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG",
        "topicName":"T","topicSysFlag":0,"writeQueueNums":2}}}}"""
    got = decode_registration(body, version=407, compressed=False)
    assert got == RegistrationBody(DataVersion(5, 1, 0), (TopicConfig("T", 2, 2, 6),))


def test_an_absent_body_has_no_topics() -> None:
    assert decode_registration(b"", version=479, compressed=False) == RegistrationBody()


def test_a_bomb_is_bounded() -> None:
    bomb = zlib.compress(struct.pack(">i", MAX_INFLATED_BYTES * 2) + bytes(MAX_INFLATED_BYTES * 2), 9)
    assert len(bomb) < MAX_INFLATED_BYTES // 100
    with pytest.raises(BodyError, match="swell"):
        decode_registration(bomb, version=479, compressed=True)


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_declared_counts_are_bounded(count: int) -> None:
    version = DataVersion().to_json()
    lie = struct.pack(">i", len(version)) + version + struct.pack(">i", count)
    with pytest.raises(BodyError, match="declare"):
        decode_registration(zlib.compress(lie), version=479, compressed=True)


@pytest.mark.parametrize("cut", range(len(INFLATED)))
def test_a_cut_inflated_body_is_named(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_registration(zlib.compress(INFLATED[:cut]), version=479, compressed=True)


@pytest.mark.parametrize("cut", range(1, len(PLAIN), 7))
def test_a_cut_plain_body_is_named(cut: int) -> None:
    with pytest.raises(BodyError):
        decode_registration(PLAIN[:cut], version=479, compressed=False)


def is_object(body: bytes) -> bool:
    """Checks for a JSON object: one without the members of a registration is read as an empty one."""
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


@given(st.binary(min_size=1, max_size=200), st.booleans(), st.sampled_from([36, 407, 479]))
def test_garbage_is_named(body: bytes, compressed: bool, version: int) -> None:
    assume(compressed or not is_object(body))
    with pytest.raises(BodyError):
        decode_registration(body, version=version, compressed=compressed)


@pytest.mark.parametrize(
    "body",
    [
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":"x"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":7}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":7}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":7}}}',
        b'{"filterServerList":7}',
        b'{"filterServerList":[7]}',
    ],
)
def test_members_of_a_wrong_type_are_named(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_registration(body, version=479, compressed=False)


def test_lasting_parts_leave_out_what_is_stamped_anew_each_time() -> None:
    later = PLAIN.replace(b"1700000000001", b"1700000009999")
    assert later != PLAIN
    assert b"".join(lasting_parts(later)) == b"".join(lasting_parts(PLAIN))
    changed = PLAIN.replace(b'"counter":3', b'"counter":4')
    assert b"".join(lasting_parts(changed)) != b"".join(lasting_parts(PLAIN))
    assert b"".join(lasting_parts(b"no stamp")) == b"no stamp"


def bare_names(count: int) -> bytes:
    """Returns a broker's topics whose attributes have bare integer names, as fastjson writes them."""
    topics = ",".join(f'"t{number}":{{"topicName":"t","attributes":{{{number}:"1"}}}}' for number in range(count))
    return f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}}}}}}'.encode()


def unknown_members(count: int) -> bytes:
    return ("{" + ",".join(f'"{number}":{{{number}:1}}' for number in range(count)) + "}").encode()


def mappings(count: int) -> bytes:
    """Returns one value of very many members."""
    inside = ",".join(f'{number}:{{{number}:"\\n"}}' for number in range(count))
    return f'{{"topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{"t":{{{inside}}}}}}}}}'.encode()


def seconds(body: bytes) -> float:
    """Returns the least time of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        decode_registration(body, version=479, compressed=False)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.no_cover  # its time is measured
@pytest.mark.parametrize("make", [bare_names, unknown_members, mappings])
def test_the_time_grows_as_the_body_does(make: Callable[[int], bytes]) -> None:
    """Each bare name once counted all lines before it: 24 s for a body of 1 MB."""
    assert seconds(make(32_000)) < 24 * seconds(make(4_000))


def test_a_topic_of_great_length_loses_its_attributes() -> None:
    attributes = "{" + ",".join(f'"{number}":"1"' for number in range(10_000)) + "}"
    body = decode_registration(compressed(attributes), version=400, compressed=True)
    assert not body.topic_configs[0].attributes


def deep(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_no_member_is_nested_deeply(depth: int) -> None:
    for body in (
        f'{{"zoo":{deep(depth)}}}',
        f'{{"topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{"t":{deep(depth)}}}}}}}',
        f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"t":{deep(depth)}}}}}}}',
        f'{{"filterServerList":{"[" * depth}{"]" * depth}}}',
    ):
        with pytest.raises(BodyError):
            decode_registration(body.encode(), version=479, compressed=False)


def compressed(attributes: str, servers: str = "[]", queues: str = "4") -> bytes:
    texts = [b"{}", f"T {queues} {queues} 6 SINGLE_TAG {attributes}".encode(), servers.encode()]
    parts = [struct.pack(">i", len(text)) + text for text in texts]
    parts.insert(1, struct.pack(">i", 1))
    return zlib.compress(b"".join(parts))


@pytest.mark.parametrize("text", [deep(40), deep(900), deep(100_000), '{"a":"\\ud800"}'])
def test_attributes_that_cannot_be_written_again_are_left_out(text: str) -> None:
    body = decode_registration(compressed(text), version=400, compressed=True)
    assert not body.topic_configs[0].attributes
    assert json.loads(body.to_json())


@pytest.mark.parametrize("text", ["[" * 40 + "]" * 40, "[" * 900 + "]" * 900, '["\\ud800"]'])
def test_filter_servers_that_cannot_be_written_again_are_refused(text: str) -> None:
    with pytest.raises(BodyError, match="filter servers"):
        decode_registration(compressed("{}", text), version=400, compressed=True)


@pytest.mark.parametrize("queues", [65_536, 2**31 - 1, -1, "9" * 5000, "1_0"])
def test_a_number_of_queues_that_no_topic_has_is_refused(queues: int | str) -> None:
    with pytest.raises(BodyError):
        decode_registration(compressed("{}", queues=str(queues)), version=400, compressed=True)
    table = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": queues}}}
    with pytest.raises(BodyError):
        decode_registration(json.dumps({"topicConfigSerializeWrapper": table}).encode(), version=479, compressed=False)
