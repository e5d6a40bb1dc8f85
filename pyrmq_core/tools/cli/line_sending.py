"""The work of `pyrmq send`: sends input lines in batches, prints results in order, and counts failures."""

from __future__ import annotations

import gc
import json
import math
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import click
import trio

from pyrmq_core import (
    BatchFailed,
    InvalidMessage,
    Message,
    MessageQueue,
    Outcome,
    Producer,
    RocketMQError,
    SendFailed,
    SendResult,
    SendStatus,
)
from pyrmq_core.client.producer.bulk.pending_sends import PendingBatch, PendingSend
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.payload import COMPRESS_OVER_BYTES
from pyrmq_core.protocol.messages.properties import goes_alone
from pyrmq_core.tools.cli.connections import Connection
from pyrmq_core.tools.cli.message_lines import LineForm, Lines, read_lines
from pyrmq_core.tools.cli.progress import ProgressLine, progress_line

PRODUCER_GROUP: Final = "pyrmq-cli"
# The limit of requests under way, each with a single message or a batch.
MAX_UNDER_WAY: Final = 256
MAX_BYTES_UNDER_WAY: Final = 32 * 1024 * 1024
LIST_MESSAGES: Final = 4000
LIST_BYTES: Final = 512 * 1024
BLANK_LINES_SHOWN: Final = 5
OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


async def send_lines(
    connection: Connection, form: LineForm, body: str | None, files: Sequence[str], report: Report
) -> None:
    """Sends `body`. If it is None, sends each line of the files, or of standard input if there are none.

    Raises `ClickException` if lines failed.
    """
    async with (
        connection.client() as client,
        Producer(
            PRODUCER_GROUP,
            client=client,
            namespace=connection.namespace,
            send_timeout=connection.timeout,
            max_in_flight=MAX_UNDER_WAY,
            max_in_flight_bytes=MAX_BYTES_UNDER_WAY,
        ) as producer,
    ):
        if body is not None:
            report.say([await producer.send(form.message(os.fsencode(body)))])
            return
        with _rare_collections(), progress_line("messages stored", _size_of(files)) as line:
            sending = LineSending(producer, form, report, line)
            if not files:
                await sending.run(sys.stdin.fileno(), "")
            for name in files:
                with _opened(name) as descriptor:
                    await sending.run(descriptor, f"{name}, ")
    report.end()


class Report:
    """The output of `pyrmq send`: one line for each message, or only their number at the end."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._began = time.monotonic()
        self._last_queue: MessageQueue | None = None
        self._last_status: SendStatus | None = None
        self._middle = ""
        self.stored = 0
        self.hides_progress = not quiet and sys.stdout.isatty()

    def say(self, results: Sequence[SendResult]) -> None:
        self.stored += len(results)
        if not self._quiet:
            line = self._json_line if self._as_json else self._line
            click.echo("\n".join([line(result) for result in results]))

    def end(self) -> None:
        if self._quiet:
            seconds = time.monotonic() - self._began
            summary = {"stored": self.stored, "seconds": round(seconds, 3)}
            text = f"{self.stored} messages stored in {seconds:.1f} s ({self.stored / seconds:,.0f} a second)"
            click.echo(json.dumps(summary) if self._as_json else text)

    def _json_line(self, result: SendResult) -> str:
        where = result.message_queue
        members = {"msgId": result.msg_id, "status": result.status.name, "brokerName": where.broker_name}
        return json.dumps({**members, "queueId": where.queue_id, "queueOffset": result.queue_offset})

    def _line(self, result: SendResult) -> str:
        where, status = result.message_queue, result.status
        if where is not self._last_queue or status is not self._last_status:  # equal in one request's messages
            self._last_queue, self._last_status = where, status
            self._middle = f" {status.name} {where} offset "
        return f"{result.msg_id}{self._middle}{result.queue_offset}"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of input lines whose messages are sent in one request. `count` leaves out blank lines."""

    first: int
    last: int
    count: int


# A range of lines, and the unfinished send of their messages.
UnderWay: TypeAlias = tuple[Span, PendingSend | PendingBatch]


class LineSending:
    """A sender of input lines in batches, which prints the results in order and counts failures."""

    def __init__(self, producer: Producer, form: LineForm, report: Report, line: ProgressLine) -> None:
        self._producer = producer
        self._form = form
        self._report = report
        self._line = line
        self._source = ""
        self._first: tuple[Span, str] | None = None  # the first lines that failed, and the error
        self._failed = self._perhaps = 0
        self._last = 0  # the number of the last line that was sent
        self._room = trio.Semaphore(MAX_UNDER_WAY)
        self._under_way = 0
        self._bytes = 0
        self._blank: list[int] = []
        self._blank_count = 0
        self._reading = trio.CancelScope()

    async def run(self, descriptor: int, source: str) -> None:
        """Sends the lines of a file, which `source` names in errors. Raises `ClickException` for lines that failed."""
        self._source, self._last, self._blank, self._blank_count = source, 0, [], 0
        self._reading = trio.CancelScope()
        give, take = trio.open_memory_channel[UnderWay](math.inf)  # `_room` limits its length
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_results, take)
                async with give, aclosing(read_lines(descriptor)) as chunks:
                    with self._reading:
                        async for lines in chunks:
                            await self._send_lines(lines, give)
        finally:
            self._line.close()
            self._say_blank()
            if self._under_way and trio.current_effective_deadline() == -math.inf:
                self._say_interrupted()
        if self._first is not None:
            raise self._failure(*self._first)

    async def _send_lines(self, lines: Lines, give: trio.MemorySendChannel[UnderWay]) -> None:
        """Sends lines in batches of up to `LIST_MESSAGES` messages and `LIST_BYTES`, and passes each send to `give`.

        A line that fits into no batch is sent alone. The first invalid line ends the sending.
        """
        lines_to_send: Lines = []
        messages: list[Message] = []
        room = LIST_BYTES
        for line in lines:
            number, content = line
            self._bytes += len(content) + 1
            if not content:
                self._note_blank(number)
                continue
            try:
                message = self._form.unchecked_message(content)
            except InvalidMessage as error:
                await self._send_list(lines_to_send, messages, give)
                self._fail_at_call([line], error)
                return
            alone = is_sent_singly(message)
            if messages and (alone or room < len(content) or len(messages) == LIST_MESSAGES):
                await self._send_list(lines_to_send, messages, give)
                lines_to_send, messages, room = [], [], LIST_BYTES
            lines_to_send.append(line)
            messages.append(message)
            room -= len(content)
            if alone:
                await self._send_list(lines_to_send, messages, give)
                lines_to_send, messages, room = [], [], LIST_BYTES
        await self._send_list(lines_to_send, messages, give)

    async def _send_list(
        self,
        lines: Lines,
        messages: list[Message],
        give: trio.MemorySendChannel[UnderWay],
    ) -> None:
        if not messages:
            return
        pending: PendingSend | PendingBatch
        await self._room.acquire()
        try:
            if len(messages) == 1:
                pending = await self._producer.send_soon(messages[0])
            else:
                pending = await self._producer.send_batch_soon(messages)
        except InvalidMessage as error:
            self._room.release()
            index, wrong = self._first_wrong(lines) or (0, error)
            await self._send_list(lines[:index], messages[:index], give)
            self._fail_at_call(lines[index : index + 1] if wrong is not error else lines, wrong)
            return
        except RocketMQError as error:
            self._fail_at_call(lines, error)
            return
        # There must be no await between the send and this line: if Ctrl-C interrupted it, the send would not be
        # counted.
        span = _span(lines)
        self._last = span.last
        self._under_way += span.count
        pending.add_done_callback(lambda ended: ended.error)  # errors count as handled: `_take_results` reports them
        give.send_nowait((span, pending))
        if {message.sharding_key or message.lite_topic for message in messages} != {
            None
        }:  # keys and lite topics order messages: the next lines wait for these
            ended = trio.Event()
            pending.add_done_callback(lambda _: ended.set())
            await ended.wait()

    def _first_wrong(self, lines: Lines) -> tuple[int, InvalidMessage] | None:
        for index, (_, content) in enumerate(lines):
            try:
                self._form.message(content)
            except InvalidMessage as error:
                return index, error
        return None

    async def _take_results(self, take: trio.MemoryReceiveChannel[UnderWay]) -> None:
        async with take:
            async for lines, pending in take:
                self._room.release()
                try:
                    results = await pending.wait()
                except RocketMQError as error:
                    await trio.lowlevel.checkpoint_if_cancelled()  # raises if an interrupt ended the send
                    self._under_way -= lines.count
                    self._fail(lines, error)
                    continue
                self._under_way -= lines.count
                self._report.say([results] if isinstance(results, SendResult) else results)
                if not self._report.hides_progress:
                    self._line.update(self._report.stored, self._bytes)

    def _fail_at_call(self, lines: Lines, error: RocketMQError) -> None:
        """Records that lines were not sent at all because of `error`. Does nothing if earlier lines have failed."""
        if not self._reading.cancel_called:
            span = _span(lines)
            self._last = span.last
            self._fail(span, error)

    def _fail(self, lines: Span, error: RocketMQError) -> None:
        stored = 0
        outcomes = [error.outcome] if isinstance(error, SendFailed) else []
        if isinstance(error, BatchFailed):
            stored = sum(len(part) for part in error.parts if isinstance(part, Sequence))
            outcomes = [part.outcome for part in error.parts if isinstance(part, SendFailed)]
        self._report.stored += stored
        self._failed += lines.count - stored
        if any(outcome is not Outcome.NOT_STORED for outcome in outcomes):
            self._perhaps += lines.count - stored
        if self._first is None or lines.first < self._first[0].first:
            self._first = lines, str(error)
        self._reading.cancel()

    def _failure(self, lines: Span, text: str) -> click.ClickException:
        where = f"line {lines.first}" if lines.count == 1 else f"lines {lines.first} to {lines.last}"
        counts = [f"{self._report.stored} stored", f"{self._failed - self._perhaps} not stored"]
        if self._perhaps:
            counts.append(f"{self._perhaps} perhaps stored (sending them again may store second copies)")
        return click.ClickException(
            f"{self._source}{where}: {text}; of the messages {', '.join(counts)}; "
            f"nothing after line {self._last} was sent"
        )

    def _say_interrupted(self) -> None:
        click.echo(
            f"interrupted: of the messages {self._report.stored} are stored and {self._under_way} perhaps stored; "
            f"nothing after {self._source}line {self._last} was sent",
            err=True,
        )

    def _note_blank(self, number: int) -> None:
        self._blank_count += 1
        if len(self._blank) < BLANK_LINES_SHOWN:
            self._blank.append(number)

    def _say_blank(self) -> None:
        if self._blank:
            count = self._blank_count
            shown = ", ".join(map(str, self._blank)) + (", ..." if count > len(self._blank) else "")
            click.echo(
                f"{self._source}{'line' if count == 1 else 'lines'} {shown} {'is' if count == 1 else 'are'} blank and "
                f"left out ({count}): RocketMQ takes no empty body",
                err=True,
            )


def _span(lines: Lines) -> Span:
    return Span(lines[0][0], lines[-1][0], len(lines))


def is_sent_singly(message: Message) -> bool:
    """Returns whether a message must be sent alone, since no batch may contain it or a batch would not compress it."""
    return len(message.body) >= COMPRESS_OVER_BYTES or goes_alone(message) or message.topic.startswith(RETRY_PREFIX)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Makes garbage collections rarer, which saves a twelfth of the processor time with JSON lines."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _opened(name: str) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size_of(files: Sequence[str]) -> int | None:
    """Returns the size of all files in bytes, or None for standard input or if any is not a regular file."""
    states = [os.stat(name) for name in files]
    if not states or not all(stat.S_ISREG(state.st_mode) for state in states):
        return None
    return sum(state.st_size for state in states)
