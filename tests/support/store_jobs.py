"""Fills a broker with messages of every kind, and reads them as consumers do, for comparisons of stores."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.query_message import QueryMessage
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.support.apache import ask

QUEUES = 4
USED_QUEUES = [
    *(("Single", number) for number in range(QUEUES)),
    ("Batch", 1),
    ("Long", 0),
    ("SCHEDULE_TOPIC_XXXX", 17),
]
EVER = (0, 1 << 60)


def message(topic: str, queue_id: int, body: bytes, properties: str = "") -> SendMessage:
    return SendMessage("P", topic, "TBW102", QUEUES, queue_id, 0, 1_700_000_000_000, 7, properties, body=body)


def make_batch_topic(address: str) -> None:
    creation = UpdateTopic("Whole", 1, 1, 6, attributes="+queue.type=BatchCQ")
    assert ask(address, creation.to_command()).code == 0


def send_whole(address: str, turn: int) -> None:
    """Sends two batches that are one record each, and a message between them."""
    for number in range(3):
        items = [BatchItem(0, b"%d-%d-%d" % (turn, number, position), b"TAGS\x01t\x02") for position in range(50)]
        batch = replace(message("Whole", 0, encode_batch_body(items), f"UNIQ_KEY\x01R{turn}{number}\x02"), batch=True)
        sent = message("Whole", 0, b"single") if number == 1 else batch
        assert ask(address, sent.to_command()).code == 0
    wait_end(address, "Whole", 0, (turn + 1) * 101)


def send_some(address: str, turn: int) -> None:
    """Sends single messages, a batch, a message that fills most of a segment's rest, and a delayed one."""
    for number in range(20):
        text = f"TAGS\x01t{number % 3}\x02KEYS\x01k{number}\x02"
        sent = ask(address, message("Single", number % QUEUES, b"%d-%d" % (turn, number), text).to_command())
        assert sent.code == 0, sent.remark
    items = [BatchItem(number, b"%d-%d" % (turn, number), b"TAGS\x01t\x02") for number in range(100)]
    batch = replace(message("Batch", 1, encode_batch_body(items)), batch=True)
    assert ask(address, batch.to_command()).code == 0
    assert ask(address, message("Long", 0, bytes([turn]) * 3_000_000).to_command()).code == 0
    # The longest delay: it is not delivered while the test runs.
    assert ask(address, message("Single", 0, b"late", "DELAY\x0118\x02").to_command()).code == 0
    wait_end(address, "SCHEDULE_TOPIC_XXXX", 17, turn + 1)


def wait_end(address: str, topic: str, queue_id: int, end: int) -> None:
    """Returns when a queue has so many messages, and every queue those sent before.

    Apache's broker makes the entries of all queues in the order of the log, a moment after it has answered.
    """
    deadline = time.monotonic() + 60
    while OffsetFound.from_command(ask(address, GetMaxOffset(topic, queue_id).to_command())).offset < end:
        assert time.monotonic() < deadline, f"queue {queue_id} of {topic} does not reach {end}"


def contents(address: str) -> dict[tuple[str, int], list[StoredRecord]]:
    """Returns every record of every queue, read in pulls as consumers do."""
    return {(topic, queue_id): list(read(address, topic, queue_id)) for topic, queue_id in USED_QUEUES}


def read(address: str, topic: str, queue_id: int, offset: int = 0) -> Iterator[StoredRecord]:
    while True:
        pull = PullMessage("G", topic, queue_id, offset, 32)
        answer = PullAnswer.from_command(ask(address, pull.to_command()))
        if answer.code != 0:
            end = OffsetFound.from_command(ask(address, GetMaxOffset(topic, queue_id).to_command()))
            assert (answer.code, end.offset) == (19, offset)
            return
        yield from iterate_records(answer.records, check_crc=True)
        offset = answer.next_begin_offset


def found_by_key(address: str, key: str, at_least: int) -> list[StoredRecord]:
    """Returns the records of a key when so many are found: Apache's broker indexes them a moment after storing them."""
    deadline = time.monotonic() + 60
    while True:
        answer = ask(address, QueryMessage("Single", key, 64, *EVER).to_command())
        records = list(iterate_records(bytes(answer.body), check_crc=True))
        if len(records) >= at_least or time.monotonic() > deadline:
            return records


def index_bytes(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / "index").iterdir())]
