"""Jobs that end and are started again: what is new in a topic, or what was stored between two times, as JSON lines.

    python examples/exports.py new 127.0.0.1:9876 orders DIRECTORY
    python examples/exports.py between 127.0.0.1:9876 orders DIRECTORY 2026-03-01T09:00:00Z 2026-03-01T10:00:00Z

`new` is for cron: the offsets that the group has committed are its memory. `between` is for a scheduler that names the
time of each run, as Airflow does: run again, it writes the same file again. A file appears whole, or not at all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from pyrmq_core import MessageQueue, OffsetRange, RocketMQError, decode
from pyrmq_core.blocking import PullConsumer

GROUP = "exports"


def export_new(nameserver: str, topic: str, directory: Path) -> int:
    """Writes a file for each queue with new messages, and commits behind it; returns the number of messages.

    A run that dies between the two is repeated by the next one into the same file, since a file is named for the offset
    that it begins with.
    """
    rows = 0
    with PullConsumer(GROUP, nameserver=nameserver) as consumer:
        bounds = consumer.offset_bounds(consumer.message_queues(topic))
        committed = consumer.committed_offsets(bounds)
        for queue, kept in bounds.items():
            goes_on = committed[queue]
            new = OffsetRange(kept.start if goes_on is None else goes_on, kept.end)
            if new:
                name = f"{topic}-{queue.broker_name}-{queue.queue_id}-{new.start:020}.jsonl"
                with whole_file(directory / name) as file:
                    write(consumer, {queue: new}, file)
                consumer.commit(queue, new.end)
                rows += len(new)
    return rows


def export_between(nameserver: str, topic: str, directory: Path, start: datetime, end: datetime) -> int:
    """Writes the messages stored from `start` up to, without, `end` to one file; returns their number."""
    with PullConsumer(GROUP, nameserver=nameserver) as consumer:
        ranges = {
            queue: OffsetRange(consumer.offset_at(queue, start), consumer.offset_at(queue, end))
            for queue in consumer.message_queues(topic)
        }
        name = f"{topic}-{start:%Y%m%dT%H%M%S}-{end:%Y%m%dT%H%M%S}.jsonl"
        with whole_file(directory / name) as file:
            write(consumer, ranges, file)
    return sum(map(len, ranges.values()))


def write(consumer: PullConsumer, ranges: Mapping[MessageQueue, OffsetRange], file: TextIO) -> None:
    """Writes each message as a line; raises `DataLost` if some of them are not kept any more."""
    for queue, wanted in ranges.items():
        with consumer.read(queue, wanted.start, wanted.end) as pulls:
            for pull in pulls:
                for message in decode(pull, OffsetRange(pull.start, pull.next_offset)):
                    line = {
                        "broker": queue.broker_name,
                        "queue": queue.queue_id,
                        "offset": message.queue_offset,
                        "stored": message.store_timestamp.isoformat(),
                        "keys": message.keys,
                        "body": message.body.decode(errors="backslashreplace"),
                    }
                    file.write(json.dumps(line) + "\n")


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Opens a file under another name, and gives it its own when the block has ended and all is on the disk."""
    unfinished = path.with_suffix(".part")
    with unfinished.open("w") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def main(what: str, nameserver: str, topic: str, directory: str, *times: str) -> None:
    if what == "new":
        rows = export_new(nameserver, topic, Path(directory))
    else:
        start, end = map(datetime.fromisoformat, times)
        rows = export_between(nameserver, topic, Path(directory), start, end)
    print(rows, "messages of", topic)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RocketMQError as error:
        sys.exit(f"exports: {error}")
