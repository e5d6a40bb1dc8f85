"""`pyrmq send`: one message, or the lines of standard input or of files, sent in batches as fast as they come.

Results are printed in the order of the lines. After a failed line no further line is read, and the sends under way are
waited for: the error says how many messages are stored, not stored, and perhaps stored, and where to go on.
"""

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
from datetime import timedelta
from typing import Any, Final, TypeAlias

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
from pyrmq_core.cli.connections import Connection, connection_options
from pyrmq_core.cli.message_lines import LineForm, Lines, read_lines
from pyrmq_core.cli.progress import ProgressLine, progress_line
from pyrmq_core.cli.servers import SectionedCommand, run
from pyrmq_core.client.producer.bulk.pending_sends import PendingBatch, PendingSend
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.payload import COMPRESS_OVER_BYTES

# Lines whose messages are under way.
UnderWay: TypeAlias = tuple[Lines, PendingSend | PendingBatch]

PRODUCER_GROUP: Final = "pyrmq-cli"
# Single messages and lists under way.
MAX_UNDER_WAY: Final = 256
MAX_BYTES_UNDER_WAY: Final = 32 * 1024 * 1024
LIST_MESSAGES: Final = 4000
LIST_BYTES: Final = 512 * 1024
BLANK_LINES_SHOWN: Final = 5
OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


@click.command(cls=SectionedCommand)
@click.argument("topic")
@click.argument("body", required=False)
@connection_options
@click.option("--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Send its lines.")
@click.option(
    "--input", "form", type=click.Choice(("text", "json")), default="text", show_default=True,
    help="A line is a body, or a JSON object: body, tags, keys, properties, ...",
)  # fmt: skip
@click.option("--tags", help="One word that consumers filter by.")
@click.option("--keys", help="Words that an index finds, separated by spaces.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@click.option("--sharding-key", help="Messages of one key share a queue, in their order.")
@click.option("--delay", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Deliver later (5.0 on).")
@click.option("--delay-level", type=click.IntRange(1, 18), help="Deliver later: 1 (1 s) to 18 (2 h).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number of messages, at the end.")
def send(
    topic: str,
    body: str | None,
    connection: Connection,
    files: tuple[str, ...],
    form: str,
    properties: tuple[str, ...],
    delay: float | None,
    as_json: bool,
    quiet: bool,
    **fields: Any,
) -> None:
    """Send BODY, or one message for each line of standard input or of files."""
    if body is not None and files:
        raise click.UsageError("give BODY or --file, not both")
    if properties:
        fields["properties"] = dict(_name_and_value(text) for text in properties)
    if delay is not None:
        fields["delay"] = timedelta(seconds=min(delay, timedelta.max.days))
    run(_send, connection, LineForm(topic, fields, as_json=form == "json"), body, files, Report(as_json, quiet))


async def _send(connection: Connection, form: LineForm, body: str | None, files: Sequence[str], report: Report) -> None:
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
    """The output of a command: a line a message, or only their number at the end."""

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
        """Prints where the messages are stored."""
        self.stored += len(results)
        if not self._quiet:
            line = self._json_line if self._as_json else self._line
            click.echo("\n".join([line(result) for result in results]))

    def end(self) -> None:
        """Prints the number of messages, if nothing was printed for each."""
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
        if where is not self._last_queue or status is not self._last_status:  # those of a request have the same ones
            self._last_queue, self._last_status = where, status
            self._middle = f" {status.name} {where} offset "
        return f"{result.msg_id}{self._middle}{result.queue_offset}"


class LineSending:
    """The lines of one input after another: batches under way, results in order, and the account of failures."""

    def __init__(self, producer: Producer, form: LineForm, report: Report, line: ProgressLine) -> None:
        self._producer = producer
        self._form = form
        self._report = report
        self._line = line
        self._source = ""
        self._first: tuple[Lines, str] | None = None  # the first lines that failed, and why
        self._failed = self._perhaps = 0
        self._last = 0  # the number of the last line that was sent
        self._room = trio.Semaphore(MAX_UNDER_WAY)
        self._under_way = 0
        self._bytes = 0
        self._blank: list[int] = []
        self._blank_count = 0
        self._reading = trio.CancelScope()

    async def run(self, descriptor: int, source: str) -> None:
        """Sends the lines of one file; raises `ClickException` for lines that failed."""
        self._source, self._last, self._blank, self._blank_count = source, 0, [], 0
        self._reading = trio.CancelScope()
        give, take = trio.open_memory_channel[UnderWay](math.inf)  # bounded by the room
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
        """Sends the lines in lists as long as a request; those that no batch may hold go alone."""
        some: Lines = []
        messages: list[Message] = []
        room = LIST_BYTES
        for number, content in lines:
            self._bytes += len(content) + 1
            if not content:
                self._note_blank(number)
                continue
            try:
                message = self._form.message(content)
            except InvalidMessage as error:
                await self._send_list(some, messages, give)
                self._last = number
                self._fail([(number, content)], error)
                return
            alone = _goes_alone(message)
            if messages and (alone or room < len(content) or len(messages) == LIST_MESSAGES):
                await self._send_list(some, messages, give)
                some, messages, room = [], [], LIST_BYTES
            some.append((number, b""))
            messages.append(message)
            room -= len(content)
            if alone:
                await self._send_list(some, messages, give)
                some, messages, room = [], [], LIST_BYTES
        await self._send_list(some, messages, give)

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
        except RocketMQError as error:
            self._last = lines[-1][0]
            self._fail(lines, error)
            return
        # Nothing waits between the send and this: an interrupt would lose account of it.
        self._last = lines[-1][0]
        self._under_way += len(lines)
        give.send_nowait((lines, pending))
        if any(message.sharding_key is not None for message in messages):  # the next ones follow in their order
            ended = trio.Event()
            pending.add_done_callback(lambda _: ended.set())
            await ended.wait()

    async def _take_results(self, take: trio.MemoryReceiveChannel[UnderWay]) -> None:
        async with take:
            async for lines, pending in take:
                self._room.release()
                try:
                    results = await pending.wait()
                except RocketMQError as error:
                    await trio.lowlevel.checkpoint_if_cancelled()  # given up, because the command is interrupted
                    self._under_way -= len(lines)
                    self._fail(lines, error)
                    continue
                self._under_way -= len(lines)
                self._report.say([results] if isinstance(results, SendResult) else results)
                if not self._report.hides_progress:
                    self._line.update(self._report.stored, self._bytes)

    def _fail(self, lines: Lines, error: RocketMQError) -> None:
        """Accounts for lines that failed, and ends reading; sends under way are waited for."""
        stored = 0
        outcomes = [error.outcome] if isinstance(error, SendFailed) else []
        if isinstance(error, BatchFailed):
            stored = sum(len(part) for part in error.parts if isinstance(part, Sequence))
            outcomes = [part.outcome for part in error.parts if isinstance(part, SendFailed)]
        self._report.stored += stored
        self._failed += len(lines) - stored
        if any(outcome is not Outcome.NOT_STORED for outcome in outcomes):
            self._perhaps += len(lines) - stored
        if self._first is None or lines[0][0] < self._first[0][0][0]:
            self._first = lines, str(error)
        self._reading.cancel()

    def _failure(self, lines: Lines, text: str) -> click.ClickException:
        first, last = lines[0][0], lines[-1][0]
        where = f"line {first}" if first == last else f"lines {first} to {last}"
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
            one = self._blank_count == 1
            shown = ", ".join(map(str, self._blank)) + (", ..." if self._blank_count > len(self._blank) else "")
            click.echo(
                f"{self._source}line{'' if one else 's'} {shown} {'is' if one else 'are'} blank and left out "
                f"({self._blank_count}): RocketMQ takes no empty body",
                err=True,
            )


def _goes_alone(message: Message) -> bool:
    """Returns whether a batch would not hold the message, or not compress its body."""
    return (
        len(message.body) >= COMPRESS_OVER_BYTES
        or message.delay is not None
        or message.delay_level is not None
        or message.deliver_at is not None
        or message.topic.startswith(RETRY_PREFIX)
    )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Lets more objects be made between two looks for garbage in circles: lines under way are many, and make none.

    It takes a twelfth off the processor time of JSON lines.
    """
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _opened(name: str) -> Iterator[int]:
    """Yields the descriptor of a file."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size_of(files: Sequence[str]) -> int | None:
    """Returns the bytes of all files; None for standard input, and where one of them is no regular file."""
    states = [os.stat(name) for name in files]
    if not states or not all(stat.S_ISREG(state.st_mode) for state in states):
        return None
    return sum(state.st_size for state in states)


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
