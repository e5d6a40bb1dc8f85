"""The parsers of pops, receipts, lite groups and the revive log, for `fuzzing`, with real input for each.

What is read and can be written again is read as the same: a receipt that changes on its way acknowledges another
message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pyrmq_core.client.consumer.pop.popped import (
    Popped,
    lite_pulls_of,
    pulls_of,
    readable_part,
    with_lite_receipts,
    with_receipts,
)
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.record import unpack_record
from pyrmq_core.protocol.requests.pop.assignments import Assignments, QueryAssignment, SetRequestMode
from pyrmq_core.protocol.requests.pop.lite import (
    LiteAction,
    LiteChange,
    LiteStart,
    LiteSubscriptionCtl,
    NotifyUnsubscribeLite,
    PopLiteMessage,
)
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo, MessageAwaited, PollingInfo
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.receipt import Receipt
from pyrmq_core.protocol.requests.pop.settle import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
    ack_entries,
)
from pyrmq_core.servers.broker.clients.held_pulls import HeldLimits, HeldPulls
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.pop.ordered import FILE_NAME, OrderedPop, OrderedQueues
from pyrmq_core.servers.broker.pop.records import Ack, BadEntry, CheckPoint, PopKey, read_entry
from pyrmq_core.servers.broker.pop.revival import Revival
from pyrmq_core.servers.broker.pop.revive_log import ReviveLog
from pyrmq_core.servers.broker.pop.waits import PopWaits
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.timers.timer_rules import BadTimer, TimerSettings
from tests.hostile import client_parsers
from tests.hostile.targets import Target
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.transactions.halves import HALF, raw
from tests.support import golden

HEADERS: Final[tuple[Any, ...]] = (
    *(PopMessage, AckMessage, ChangeInvisibleTime, InvisibleTimeChanged, PopLiteMessage, NotifyUnsubscribeLite),
    *(AwaitMessage, MessageAwaited, GetPollingInfo, PollingInfo),
)
BODIES: Final[tuple[Any, ...]] = (
    LiteSubscriptionCtl,
    BatchAckMessage,
    QueryAssignment,
    SetRequestMode,
    Assignments,
)
RECEIPT: Final = Receipt(7, 1_795_933_727_946, 60_000, 3, "2", "broker-a", 1, 9)
LOG: Final = ReviveLog("rmq_sys_REVIVE_LOG_C", 8, "broker-a", Identity("127.0.0.1", 10911), TimerSettings())
NOW_MS: Final = 1_795_933_728_054
RULES: Final = BodyRules(max_body_bytes=1 << 20)


def receipt(text: str) -> None:
    read = Receipt.decode(text)
    assert Receipt.decode(read.encode()) == read
    assert BatchAckMessage.from_command(BatchAckMessage("b", ack_entries("T", "G", [read])).to_command()).entries[
        0
    ].offsets == (read.queue_offset,)


def _lines(fields: dict[str, str]) -> bytes:
    return "\n".join(f"{name}={text}" for name, text in fields.items()).encode()


def headers(text: str) -> None:
    """Reads lines `name=value` as the header of every request and every answer."""
    ext = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
    for kind in HEADERS:
        with contextlib.suppress(RocketMQError):
            read = kind.from_command(Command(getattr(kind, "CODE", 0), ext))
            assert kind.from_command(read.to_command()) == read


CHANGE = LiteChange(LiteAction.PARTIAL_ADD, "c@1", "G", "T", ("a", "b"), LiteStart("TAIL_N", 3))
HEADER_SEEDS: Final = tuple(
    _lines(dict(request.to_command().ext))
    for request in (
        PopMessage("G", "T", -1, 32, 60_000, 15_000, 0, 1, "TAG", "a || b", False, "attempt", "broker-a"),
        AckMessage("G", "T", 1, RECEIPT.encode(), 9, "broker-a", "session-1"),
        ChangeInvisibleTime("G", "T", 1, RECEIPT.encode(), 9, 1000, "broker-a", "session-1"),
        PopLiteMessage("c@1", "G", "T", 32, 60_000, 15_000, 0, "attempt", "broker-a"),
        NotifyUnsubscribeLite("session-1", "G", "c@1"),
    )
)
BODY_SEEDS: Final = (
    bytes(LiteSubscriptionCtl((CHANGE, LiteChange(LiteAction.COMPLETE_REMOVE, "c", "G", "T"))).to_command().body),
    bytes(BatchAckMessage("broker-a", ack_entries("T", "G", [RECEIPT])).to_command().body),
    bytes(QueryAssignment("T", "G", "c").to_command().body),
    b'{"topic":"T","consumerGroup":"G","mode":"POP","popShareQueueNum":-1}',
    b'{"messageQueueAssignments":[{"messageQueue":{"topic":"T","brokerName":"b","queueId":-1},"mode":"POP"}]}',
)


def bodies(data: bytes) -> None:
    """Reads a body as that of every request and answer that has one."""
    for kind in BODIES:
        with contextlib.suppress(RocketMQError):
            read = kind.from_command(Command(getattr(kind, "CODE", 0), body=data))
            assert kind.from_command(read.to_command()) == read


def answer(data: bytes) -> None:
    """Reads the answer to a pop: the texts about its messages in the first line, and then records."""
    texts, _, records = data.partition(b"\n")
    info = [*texts.decode("utf-8", "replace").split("|"), "", "", ""]
    popped = PopAnswer(0, None, 1, 2, 3, 0, info[0], None, info[1], records)
    for read in (_popped, _lite_popped):
        with contextlib.suppress(RocketMQError):
            for each in read(popped):
                assert Receipt.decode(each.receipt.encode()).queue_offset == each.receipt.queue_offset


def _popped(popped: PopAnswer) -> list[Popped]:
    items = [item for pull in pulls_of(popped, "T", "broker-a") for item in readable_part(pull, RULES)]
    return with_receipts(popped, items, "T", "broker-a")


def _lite_popped(popped: PopAnswer) -> list[Popped]:
    pulls = list(lite_pulls_of(popped, "broker-a"))
    return with_lite_receipts(popped, pulls, [readable_part(pull, RULES) for pull in pulls], "broker-a")


def _records() -> Iterator[bytes]:
    yield from (b"0 0 3||\n" + raw(HALF), b"0 2 5;1 0 7|0 2 1;0 qo2%5 2|\n" + raw(replace(HALF, topic="T", queue_id=2)))
    places = b"INNER_MULTI_DISPATCH\x01%LMQ%$T$a\x02INNER_MULTI_QUEUE_OFFSET\x014\x02"
    for tries in (b"1;2", b"0 qo0%4 2"):
        yield b"|" + tries + b"|\n" + 2 * raw(replace(HALF, topic="T", pieces=[piece(0, b"x", places)]))
    for frame in golden.answers(RequestCode.POP_MESSAGE)[:4]:
        (command,) = client_parsers.commands_of(frame.raw)
        if (texts := command.ext.get("startOffsetInfo")) is not None:
            yield f"{texts}|{command.ext.get('orderCountInfo', '')}|\n".encode() + bytes(command.body)


ANSWER_SEEDS: Final = tuple(_records())


def entries(data: bytes) -> None:
    """Reads lines `TAG TIME BODY` as entries of the revive log, revives what is due, and writes all again."""
    revival = Revival(0)
    for position, line in enumerate(data.split(b"\n")):
        tag, time, body = [*line.split(b" ", 2), b"", b""][:3]
        properties = b"TAGS\x01" + tag + b"\x02TIMER_DELIVER_MS\x01" + time + b"\x02"
        try:
            entry, deliver_ms = read_entry(ENTRY._replace(body=body, properties=properties), "broker-a")
        except BadEntry:
            revival.take(position, None)
            continue
        revival.take(position, entry, deliver_ms)
        with contextlib.suppress(BadTimer):
            (written,) = LOG.append(entry, 0, NOW_MS).pieces
            again = read_entry(ENTRY._replace(body=written.body, properties=written.properties[2:]), "broker-a")
            assert again[0] == entry, f"{entry} is {again[0]} when it was written"
    while (due := revival.due(1 << 70)) is not None:
        revival.end(due)
    assert revival.done == revival.position


ENTRY: Final = unpack_record(raw(HALF), 0)
KEY: Final = PopKey("T", "G", 0, 4, 1_795_933_727_946, "broker-a")


def _line(entry: CheckPoint | Ack) -> bytes:
    return b" ".join((entry.tag.encode(), str(entry.deliver_ms).encode(), entry.body))


POINT: Final = _line(CheckPoint(KEY, 5000, (4, 5, 7)))
ENTRY_SEEDS: Final = (
    b"\n".join((POINT, _line(Ack(KEY, (5,), 1_795_933_732_946)))),
    b"\n".join((POINT, _line(Ack(KEY, (4, 7), 1_795_933_732_946, "bAck")))),
    b'ck 9 {"bm":1,"c":"G","it":5000,"n":3,"pt":1,"q":0,"so":7,"t":"T"}',
)


def ordered_pops(data: bytes) -> None:
    """Opens the file of ordered pops, takes and settles a message of each queue, and writes the file again."""
    files = MemoryFiles({f"config/{FILE_NAME}": bytearray(data)})
    offsets = GroupOffsets(files)
    queues = OrderedQueues(files, offsets, PopWaits(HeldPulls(HeldLimits(1, 1, 1, 1)), "R"))
    queues.load()
    for group, topic, queue_id in list(queues._rows):
        queue = group, topic, queue_id
        row = queues._rows[queue]
        offsets.commit(*queue, row.offsets[0])
        queues.is_locked(queue, "a", row.pop_time_ms)
        queues.change(queue, row.offsets[-1], row.pop_time_ms, row.free_ms + 1)
        queues.ack(queue, row.offsets[0], row.pop_time_ms)
        queues.take(queue, OrderedPop(row.free_ms, 1000, row.offsets))
    list(queues.wake_freed(1 << 70))
    if (text := queues.unsaved()) is not None:
        files.contents[f"config/{FILE_NAME}"] = bytearray(text())
        again = OrderedQueues(files, offsets, PopWaits(HeldPulls(HeldLimits(1, 1, 1, 1)), "R"))
        again.load()
        assert again._rows == queues._rows


ORDERED_SEEDS: Final = (
    b'{"table":{"T@G":{0:{"a":"attempt","cm":1,"i":60000,"l":1795933727946,"o":[4,1,3],"oc":{5:1},"ot":{7:1795933727999},'
    b'"popTime":1795933727946}}},"orderedConsumptionLevel":"QUEUE"}',
    b'{"table":{"%LMQ%$T$a@G":{"0":{"popTime":1,"o":[9]}}}}',
)

TARGETS: Final[Mapping[str, Target]] = {
    "receipts": Target(lambda data: receipt(data.decode("utf-8", "replace")), (RECEIPT.encode().encode(),)),
    "headers of pops": Target(lambda data: headers(data.decode("utf-8", "replace")), HEADER_SEEDS),
    "bodies of pops": Target(
        bodies,
        BODY_SEEDS,
        b'{"acks":[',
        b'{"b":"AQ==","c":"G","it":1,"pt":1,"q":0,"r":"0","rq":0,"so":4,"t":"T"},',
        b'{"b":"AQ==","c":"G","it":1,"pt":1,"q":0,"r":"0","rq":0,"so":4,"t":"T"}]}',
    ),
    "answers to pops": Target(answer, ANSWER_SEEDS, b"", b"0 0 3;", b"\n"),
    "revive log": Target(entries, ENTRY_SEEDS, unit=POINT + b"\n"),
    "ordered pops": Target(ordered_pops, ORDERED_SEEDS),
}
