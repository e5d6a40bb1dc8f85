"""Every parser of bytes from others, with real input for each: the targets of both kinds of fuzzing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyrmq_core.columnar import decode_batches, schema_of
from pyrmq_core.columnar.arrays import keep_freed_memory
from pyrmq_core.filtering.sql92 import parse as parse_sql
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, MessageQueue, PullStatus
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.framing.headers import decode_binary, decode_json, encode_header
from pyrmq_core.protocol.java.json_text import dumps, load_object, loads
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.payload import RawPull, decode
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.messages.sysflag import COMPRESSED
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.broker.lock_queues import LockQueues
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.access.plain.addresses import address_rule
from pyrmq_core.servers.access.plain.rules import rules_of
from pyrmq_core.servers.access.user_file import read_rules
from pyrmq_core.servers.access.users.needs import needs_of
from pyrmq_core.servers.access.users.values import policies_of
from pyrmq_core.servers.access.yaml_text import load_document
from pyrmq_core.servers.broker.processors.administration.broker_settings import changed
from pyrmq_core.servers.broker.processors.administration.lists import listed_groups, listed_members, listed_topics
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.transactions.half_messages import (
    checked_again,
    committed,
    ended_offsets,
    half_message,
    postponed,
)
from pyrmq_core.servers.broker.transactions.producer_checks import check_request
from pyrmq_core.servers.protocol.registration import decode_registration
from tests.hostile import client_parsers, index_parsers, pop_parsers, store_parsers, timer_parsers
from tests.hostile.targets import Target
from tests.servers.broker.transactions.halves import HALF, raw
from tests.support import golden
from tests.support.guarded import ACL_4

QUEUE = MessageQueue("T", "broker-a", 0)
MAX_DECOMPRESSED_BYTES = 1 << 20


def _frame(data: bytes) -> object:
    decoder = FrameDecoder(max_header_bytes=1 << 20)
    decoder.feed(memoryview(data))
    commands = []
    while (command := decoder.next_command()) is not None:
        commands.append(encode_header(Command(command.code, dict(command.ext), command.body)))
    return commands


def _header(serialization: Serialization) -> Callable[[bytes], object]:
    decode = {Serialization.JSON: decode_json, Serialization.ROCKETMQ: decode_binary}[serialization]

    def parse(data: bytes) -> object:
        command = decode(data, b"")
        return encode_header(command), dict(command.ext)

    return parse


def _pull(records: bytes) -> RawPull:
    return RawPull(QUEUE, 0, 2**40, 0, 2**40, PullStatus.FOUND, records)


def _columns(records: bytes) -> object:
    batches = decode_batches([_pull(records)], columns=schema_of(None), within=EVERYTHING)
    return [batch for batch in batches]  # noqa: C416 - a generator that is run to its end


def _members(code: int, body: bytes) -> Command:
    return Command(code, {}, body)


def _text(function: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: function(data.decode("utf-8", "replace"))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _headers_of(serialization: Serialization) -> tuple[bytes, ...]:
    headers = []
    for frame in golden.frames():
        length = int.from_bytes(frame.raw[4:8], "big")
        if length >> 24 == serialization.value:
            headers.append(frame.raw[8 : 8 + (length & 0xFFFFFF)])
    return tuple(headers[:40])


def _bodies(frames: list[golden.GoldenFrame]) -> tuple[bytes, ...]:
    bodies = tuple(frame.raw[8 + (int.from_bytes(frame.raw[4:8], "big") & 0xFFFFFF) :] for frame in frames)
    return tuple(body for body in bodies if body)[:20]


_PULLS = tuple(bytes.fromhex(pull["body"]) for pull in golden.load("real_pull_records.json") if pull["body"])
_ROUTES = _bodies(golden.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC))
_BEATS = _bodies(golden.requests(RequestCode.HEART_BEAT))
_REGISTRATIONS = _bodies(golden.requests(RequestCode.REGISTER_BROKER))
_GROUP = b'{"groupName":"g%d","subscriptionDataSet":[]}'


def _half(data: bytes) -> None:
    """Reads a half message, and makes all that a broker makes of one."""
    half = half_message(data)
    if half is not None:
        committed(half)
        checked_again(half, (half.checks or 0) + 1)
        postponed(half)
        check_request(half, "broker-a")


_POLICIES = (
    b'{"policies":[{"policyType":"Custom","entries":[{"resource":"Topic:t*","actions":["Pub"],"sourceIps":["10.0.0.0/8"],'
    b'"decision":"Allow"}]}],"subject":"User:u"}'
)
_USERS = b'{"users":[{"username":"u","password":"p","userType":"Super","userStatus":"enable"}],"acls":[%s]}' % _POLICIES
_NEEDY = (b'{"topicConfigList":[{"topicName":"t"}],"groupConfigList":[{"groupName":"g"}],"groupName":"g"}', *_BEATS)

keep_freed_memory()  # the block that is made once a process is no input's

TARGETS: Mapping[str, Target] = {
    "plain_acl.yml": Target(
        lambda data: rules_of([("plain_acl.yml", load_document(data))]),
        (ACL_4.encode(), b"accounts: &a [{accessKey: 12345678, secretKey: 0x12345678, admin: yes}]\nagain: *a"),
        b"accounts:\n",
        b"- {accessKey: account, secretKey: s3cret-key, topicPerms: [a=PUB]}\n",
    ),
    "white addresses": Target(
        lambda data: address_rule(data.decode("latin-1")).matches("10.0.0.1"),
        (b"10.0.0.1,10.0.0.2", b"10.0.0-9.*", b"fe80::{1,2}", b"fe80::1-ff:*"),
        b"10.0.0.{1",
        b",2",
        b"}",
    ),
    "authUsers.json": Target(read_rules, (_USERS,)),
    "policies": Target(lambda data: policies_of(load_object(data, "acl").get("policies")), (_POLICIES,)),
    "bodies that need permissions": Target(
        lambda data: [needs_of(_members(code, data), "c") for code in (18, 34, 41, 200, 225)], _NEEDY
    ),
    "lists of topics": Target(
        lambda data: list(listed_topics(listed_members(data, "topicConfigList"))),
        (
            b'{"topicConfigList":[{"topicName":"T","perm":6,"attributes":{"+message.type":"NORMAL","-reserve.time":""}}]}',
        ),
        b'{"topicConfigList":[',
        b'{"topicName":"T","perm":6,"readQueueNums":1,"writeQueueNums":1},',
        b'{"topicName":"U","perm":6}]}',
    ),
    "lists of groups": Target(
        lambda data: list(listed_groups(listed_members(data, "groupConfigList"))),
        (b'{"groupConfigList":[{"groupName":"g","retryMaxTimes":3,"consumeEnable":false}]}',),
        b'{"groupConfigList":[',
        b'{"groupName":"g"},',
        b'{"groupName":"h"}]}',
    ),
    "settings that change": Target(
        lambda data: changed(BrokerConfig(), parse_java_properties(data.decode("latin-1"))),
        (b"maxMessageSize=1000\ntraceOn=false\n", b"deleteWhen=04;16\nbrokerPermission=6", b"noSuchSetting=1"),
    ),
    "frames": Target(_frame, tuple(frame.raw for frame in golden.frames()[:60]), unit=golden.frames()[0].raw),
    "JSON headers": Target(
        _header(Serialization.JSON),
        _headers_of(Serialization.JSON),
        b'{"code":1,"extFields":{',
        b'"a":"b",',
        b'"c":"d"}}',
    ),
    "ROCKETMQ headers": Target(
        _header(Serialization.ROCKETMQ),
        (encode_header(Command(10, {"a": "b", "queueId": "1"}, serialization=Serialization.ROCKETMQ)),),
    ),
    "JSON bodies": Target(
        lambda data: dumps(loads(data, "a body")),
        (*_ROUTES, *_BEATS, b'{0:1,-1:{"a":[1,2]}}'),
        b"{",
        b'1:"a",',
        b'2:"b"}',
    ),
    "routes": Target(
        TopicRouteData.from_json,
        _ROUTES,
        b'{"queueDatas":[',
        b'{"brokerName":"b","readQueueNums":1,"writeQueueNums":1,"perm":6,"topicSysFlag":0},',
        b'{"brokerName":"c","readQueueNums":1,"writeQueueNums":1,"perm":6,"topicSysFlag":0}],"brokerDatas":[]}',
    ),
    "heartbeats": Target(
        lambda data: HeartBeat.from_command(_members(34, data)),
        _BEATS,
        b'{"clientID":"c","producerDataSet":[',
        b'{"groupName":"g"},',
        b'{"groupName":"h"}]}',
    ),
    "registrations": Target(
        lambda data: decode_registration(data, version=493, compressed=False),
        _REGISTRATIONS,
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{',
        b'1:{"topicName":"1","perm":6,"readQueueNums":1,"writeQueueNums":1},',
        b'"z":{"topicName":"z","perm":6,"readQueueNums":1,"writeQueueNums":1}}}}',
    ),
    "compressed registrations": Target(
        lambda data: decode_registration(data, version=493, compressed=True),
        _bodies(golden.requests(RequestCode.REGISTER_BROKER)),
    ),
    "locks": Target(
        lambda data: LockQueues.from_command(_members(41, data)),
        _bodies(golden.requests(RequestCode.LOCK_BATCH_MQ)) or (_json({"consumerGroup": "g", "mqSet": []}),),
        b'{"consumerGroup":"g","clientId":"c","mqSet":[',
        b'{"topic":"t","brokerName":"b","queueId":1},',
        b'{"topic":"t","brokerName":"b","queueId":2}]}',
    ),
    "cluster information": Target(
        lambda data: ClusterInfo.from_command(_members(0, data)),
        _bodies(golden.answers(RequestCode.GET_BROKER_CLUSTER_INFO)) or (_json({"brokerAddrTable": {}}),),
    ),
    "records": Target(lambda data: list(iterate_records(data, check_crc=True)), _PULLS, unit=_PULLS[0]),
    "messages": Target(
        lambda data: decode(_pull(data), allow_gaps=True, max_body_bytes=MAX_DECOMPRESSED_BYTES), _PULLS
    ),
    "columns": Target(_columns, _PULLS, unit=_PULLS[0]),
    "columns beside rows": Target(client_parsers.rows_and_columns, _PULLS),
    "compiled beside rows": Target(client_parsers.compiled_and_rows, _PULLS),
    "conversations": Target(client_parsers.conversations, tuple(frame.raw for frame in golden.frames()[:200])),
    "commit records": Target(client_parsers.manifest, client_parsers.MANIFEST),
    "offsets of streams": Target(client_parsers.stream_offset, (client_parsers.STREAM_OFFSET,)),
    "options": Target(client_parsers.options, client_parsers.OPTIONS, b"topic=t\n", b"tags=a || b\n"),
    "conditions of a search": Target(
        _text(client_parsers.where), client_parsers.WHERE, b"json.a == 1", b" or json.b in [1]"
    ),
    "schemas of bodies": Target(client_parsers.schema, client_parsers.SCHEMA, unit=client_parsers.SCHEMA[0] + b"\n"),
    "bodies on the page": Target(client_parsers.page_body, client_parsers.PAGE_BODIES, b"[", b'{"a":1},', b"1]"),
    "traces": Target(_text(client_parsers.traces), client_parsers.TRACES, unit=client_parsers.TRACES[0]),
    "batch bodies": Target(lambda data: list(iterate_batch_body(data)), _PULLS),
    "properties": Target(
        _text(lambda text: encode_properties(decode_properties(text))),
        (b"KEYS\x01a b\x02TAGS\x01t\x02",),
        unit=b"a\x01b\x02",
    ),
    "properties files": Target(
        _text(parse_java_properties), (b"a = b\n# c\nd:e\\\n f\n",), unit=b"key = value \\\n more\n"
    ),
    "SQL": Target(
        _text(parse_sql),
        (
            b"amount > 10 AND (region = 'eu' OR TAGS IN ('a', 'b')) AND name IS NOT NULL",
            b"a BETWEEN 1 AND 5 OR NOT b <> 'x'",
        ),
        b"a = 1",
        b" OR a = 2",
    ),
    "tags": Target(_text(TagFilter.parse), (b"a || b||c",), b"a", b" || b"),
    "half messages": Target(_half, (raw(HALF), raw(replace(HALF, pieces=[piece(0, b"x", b"TRAN_MSG\x01true\x02")])))),
    "ended half messages": Target(
        lambda data: ended_offsets(raw(replace(HALF, pieces=[piece(0, data, b"TAGS\x01d\x02")]))),
        (b"12,13,", b"7"),
        unit=b"123,",
    ),
    "log files": Target(store_parsers.log_file, (store_parsers.LOG_BYTES,)),
    "queue files": Target(store_parsers.queue_file, (store_parsers.QUEUE_BYTES,)),
    "checkpoints": Target(store_parsers.checkpoint, (store_parsers.CHECKPOINT_BYTES,)),
    "own checkpoints": Target(store_parsers.own_checkpoint, (store_parsers.OWN_CHECKPOINT_BYTES,)),
    "blocks of a master": Target(store_parsers.masters_blocks, (store_parsers.BLOCKS, store_parsers.BLOCKS[:700])),
    "reports of a slave": Target(store_parsers.slaves_reports, (bytes(16), b"\0\0\0\0\0\0\1\0" * 3)),
    "tables of a broker": Target(
        store_parsers.table,
        (b'{"topicConfigTable":{"T":{"perm":6}}}', b'{0:1,-1:{"a":[1,2]}}'),
        b"{",
        b'"a":1,',
        b'"b":2}',
    ),
    "index files": Target(index_parsers.index_file, index_parsers.FILES),
    "timer messages": Target(timer_parsers.message, (raw(HALF), timer_parsers.MESSAGE)),
    "timer logs": Target(timer_parsers.log, (timer_parsers.ENTRIES,), unit=timer_parsers.ENTRIES),
    "timer wheels": Target(timer_parsers.wheel, (timer_parsers.SLOTS,)),
    "timer checkpoints": Target(timer_parsers.checkpoint, (timer_parsers.CHECKPOINT,)),
    **pop_parsers.TARGETS,
    "offset ids": Target(_text(decode_offset_msg_id), (b"7F00000100002A9F0000000000000000",)),
    **{
        f"bodies of compression {kind}": Target(
            lambda data, kind=kind: decompress(data, COMPRESSED | kind << 8, max_bytes=MAX_DECOMPRESSED_BYTES),  # type: ignore[misc]
            (bytes.fromhex("789c4b4c4a06000246012700"), bytes.fromhex("04224d186440a70300008061626300000000")),
        )
        for kind in range(4)
    },
}
