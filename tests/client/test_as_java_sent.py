"""Our producer in the situations in which a Java producer was recorded: the same requests with the same fields."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from pyrmq_core import Client, LocalTransactionState, Message, MessageExt, Producer, RocketMQError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from tests.support import golden
from tests.support.scripted import BATCH, ROUTE, SEND, Step, answer, cut, refuse
from tests.support.stage import Stage, settled

END = RequestCode.END_TRANSACTION
LINE = re.compile(r"[\d.]+ port\+\d+ st=0 (\{.*\}) body=(b['\"].*)")
TRACE_GROUP = re.compile(r"_INNER_TRACE_PRODUCER-.*")
STORED = MessageStored(
    msg_ids="7F00000100002A9F0000000000001A0C",
    queue_id=0,
    queue_offset=5,
    transaction_id="TID",
    region_id="DefaultRegion",
    trace_on="true",
)
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


@dataclass(frozen=True)
class Sent:
    """A request without what differs between any two runs."""

    code: int
    oneway: bool
    fields: dict[str, str]
    properties: dict[str, str]
    bodies: list[bytes]


def java(name: str) -> list[Sent]:
    """Returns the route requests, messages and ends of transactions of a recorded producer."""
    lines = []
    ids: dict[str, str] = {}
    for line in golden.text(f"log_{name}.txt").splitlines():
        if match := LINE.fullmatch(line):
            header = json.loads(match.group(1))
            if header["code"] in (ROUTE, SEND, BATCH, END):
                lines.append(
                    sent(header["code"], header["flag"], header["extFields"], ast.literal_eval(match.group(2)), ids)
                )
    return lines


def sent(code: int, flag: int, ext: dict[str, str], body: bytes, ids: dict[str, str]) -> Sent:
    """Replaces ids by their order of appearance, so that a repeated one stays visible as repeated."""
    if code == ROUTE:
        return Sent(code, False, {"topic": ext["topic"]}, {}, [])
    if code == END:
        fields = {**ext, "msgId": named(ext["msgId"], ids), "bname": "?"}
        return Sent(code, flag == 2, fields, {}, [])
    fields = {letter: text for letter, text in ext.items() if letter not in "egin"}
    fields["a"] = TRACE_GROUP.sub("the trace's producer", fields["a"])
    properties = decode_properties(ext["i"])
    if fields["m"] != "true":
        bodies = [plain(decompress(body, int(ext["f"]), max_bytes=99999))]
        return Sent(code, flag == 2, fields, known(properties, ids), bodies)
    properties.pop("UNIQ_KEY", None)  # Java names the batch too; brokers before 5.4 would show it for every message
    properties.pop("WAIT", None)
    items = [(bytes(item.body), decode_properties(item.properties.decode())) for item in iterate_batch_body(body)]
    return Sent(code, flag == 2, fields, properties, [inner + repr(known(own, ids)).encode() for inner, own in items])


def named(unique_id: str, ids: dict[str, str]) -> str:
    return ids.setdefault(unique_id, f"id {len(ids)}")


def known(properties: dict[str, str], ids: dict[str, str]) -> dict[str, str]:
    kept = dict(sorted(properties.items()))
    for name in ("CORRELATION_ID", "REPLY_TO_CLIENT"):
        if name in kept:
            kept[name] = "?"
    if "UNIQ_KEY" in kept:
        kept["UNIQ_KEY"] = named(kept["UNIQ_KEY"], ids)
    if "KEYS" in kept:
        kept["KEYS"] = " ".join(sorted(ids.get(key, key) for key in kept["KEYS"].split()))
    return kept


def plain(body: bytes) -> bytes:
    """Returns a trace record without its times, ids and addresses."""
    if not body.startswith(b"Pub\x01"):
        return body
    fields = body.split(b"\x01")
    for volatile in (1, 5, 8, 10):
        fields[volatile] = b"?"
    return b"\x01".join(fields)


def ours(stage: Stage) -> list[Sent]:
    everything = [seen for server in (stage.nameserver, *stage.brokers.values()) for seen in server.seen]
    commands = [seen.command for seen in sorted(everything, key=lambda seen: seen.at)]
    ids: dict[str, str] = {}
    return [
        sent(command.code, command.flag, dict(command.ext), bytes(command.body), ids)
        for command in commands
        if command.code in (ROUTE, SEND, BATCH, END)
    ]


class Listener:
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


Act = Callable[[Producer], Awaitable[Any]]
ONE = Message("TopicTest", b"hello", keys="K1", tags="TagA")
E = Message("TopicTest", b"e")


async def soon(producer: Producer) -> None:
    await (await producer.send_soon(Message("TopicTest", b"as"))).wait()


async def ask(producer: Producer) -> None:
    with trio.move_on_after(0.2):  # no consumer replies
        await producer.request(Message("TopicTest", b"rq"), timeout=3)


SITUATIONS: list[tuple[str, Step, Act]] = [
    ("ok_one", answer(STORED.to_command()), lambda producer: producer.send(ONE)),
    (
        "ok_oneway",
        answer(STORED.to_command()),
        lambda producer: producer.send_oneway(Message("TopicTest", b"ow", keys="K1", tags="TagA")),
    ),
    (
        "ok_batch",
        answer(MessageStored(msg_ids="A,B", queue_id=0, queue_offset=0).to_command()),
        lambda producer: producer.send_batch(
            [Message("TopicTest", b"b1", keys="K1", tags="TagA"), Message("TopicTest", b"b2", keys="K2", tags="TagA")]
        ),
    ),
    (
        "code10_err",
        lambda request, peer: Command(10, STORED.to_command().ext),
        lambda producer: producer.send(E),
    ),
    ("code13_err", refuse(13), lambda producer: producer.send(E)),
    ("code14_err", refuse(14), lambda producer: producer.send(E)),
    ("code14_async", refuse(14), soon),
    ("close_err", cut, lambda producer: producer.send(E)),
    ("close_async", cut, soon),
    (
        "ok_request",
        answer(STORED.to_command()),
        lambda producer: producer.request(Message("TopicTest", b"rq"), timeout=3),
    ),
]


@pytest.fixture
def recorded(stage: Stage) -> Stage:
    """The recorded cluster: two brokers with two queues of TopicTest each."""
    stage.topic("TopicTest", queues=2)
    return stage


@pytest.mark.parametrize(("name", "step", "act"), SITUATIONS, ids=[name for name, _, _ in SITUATIONS])
async def test_the_same_requests(recorded: Stage, client: Client, name: str, step: Step, act: Act) -> None:
    for server in recorded.brokers.values():
        server.always(SEND, step)
        server.always(BATCH, step)
    async with Producer("PG_A", client=client) as producer:
        with contextlib.suppress(RocketMQError):
            await act(producer)
        await settled()
    sends = [request for request in ours(recorded) if request.code != ROUTE]
    assert sends == [request for request in java(name) if request.code != ROUTE]
    assert ours(recorded)[0] == java(name)[0]


async def test_a_large_body(recorded: Stage, client: Client) -> None:
    (_, theirs) = java("ok_big")
    async with Producer("PG_A", client=client) as producer:
        await producer.send(Message("TopicTest", theirs.bodies[0]))
    assert ours(recorded)[-1] == theirs


async def test_a_delay_level(recorded: Stage, client: Client) -> None:
    theirs = java("ok_delay")
    async with Producer("PG_A", client=client) as producer:
        await producer.send(Message("TopicTest", b"d", delay_level=3))
    assert ours(recorded)[-1] == theirs[1]
    assert theirs[2].properties["TIMER_DELAY_SEC"] == "10"  # ours travels in ms, which 5.x takes as well


async def test_an_unknown_topic(stage: Stage, client: Client) -> None:
    """The route of the topic is requested, then that of TBW102, whose brokers get the message."""
    stage.auto_create()
    async with Producer("PG_A", client=client) as producer:
        await producer.send(ONE)
    assert ours(stage)[:3] == java("auto_one")


async def test_a_transaction_and_its_check(stage: Stage, client: Client) -> None:
    stage.topic("TxTopic", queues=2)
    peers: list[Peer] = []

    def store(request: Command, peer: Peer) -> Command:
        peers.append(peer)
        return STORED.to_command()

    for server in stage.brokers.values():
        server.always(SEND, store)
    async with Producer("PG_TX", client=client, transaction_listener=Listener()) as producer:
        ended = await producer.send_in_transaction(
            Message("TxTopic", b"txbody", keys="KT", tags="TagT"), lambda *_: LocalTransactionState.UNKNOW
        )
        await settled()
        msg_id = ended.result.msg_id
        check = CheckTransactionState(5, 6668, msg_id, "TID", topic=HALF, broker_name="?", record=half(msg_id))
        await peers[0].connection.send_oneway(check.to_command(), timeout=3)
        server = next(server for server in stage.brokers.values() if server.of(SEND))
        await server.wait_seen(END, 2)
    assert ours(stage) == java("tx_tx")


def half(unique_id: str) -> bytes:
    return encode_record(
        topic="TxTopic",
        queue_id=1,
        queue_offset=5,
        commit_log_offset=6668,
        body=b"txbody",
        properties=f"PGROUP\x01PG_TX\x02UNIQ_KEY\x01{unique_id}\x02",
        born_timestamp_ms=1,
        born_host="127.0.0.1:1",
        store_timestamp_ms=2,
        store_host="127.0.0.1:2",
    )


async def test_a_trace(recorded: Stage, client: Client) -> None:
    recorded.topic("RMQ_SYS_TRACE_TOPIC", queues=2)
    for server in recorded.brokers.values():
        server.always(SEND, answer(STORED.to_command()))
    async with Producer("PG_A", client=client, trace=True) as producer:
        await producer.send(ONE)
    assert ours(recorded) == java("ok_trace")
