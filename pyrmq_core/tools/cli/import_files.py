"""`pyrmq import`: sends the messages of a file that `pyrmq export` wrote, in order within each queue.

The messages of one queue are sent to one queue: that of the same broker and number if the topic has it, else any.
The file is read and sent in parts, which limits the memory. `--skip` does not count blank lines.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import click

from pyrmq_core import BatchFailed, InvalidMessage, Message, MessageQueue, Outcome, RocketMQError, SendFailed
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option, report
from pyrmq_core.tools.search.json_output import shortened

if TYPE_CHECKING:  # imported when the command runs, so that its help is fast
    from pyrmq_core import Producer
    from pyrmq_core.tools.cli.message_lines import LineForm

FORMATS: Final = ("jsonl", "parquet", "csv")
PART_MESSAGES: Final = 8000
PART_BYTES: Final = 8 * 1024 * 1024
MAX_FIELD_CHARACTERS: Final = 64 * 1024 * 1024
# The most bytes of a line, more than the largest message has with its body both as a text and in base 64.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

# The broker's name and the number of the queue that a message was read from; None in a file that lacks them.
Origin: TypeAlias = tuple[str, int] | None
RowMessage: TypeAlias = tuple[Origin, Message]


@click.command("import", cls=SectionedCommand)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@connection_options
@click.option("--topic", required=True, help="The topic to send to.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="The format of the file; by default from its name.")
@click.option(
    "--skip", default=0, show_default=True, type=click.IntRange(0), help="Begin behind so many rows, as after an error."
)
@json_option
def import_file(source: str, connection: Connection, topic: str, form: str | None, skip: int, as_json: bool) -> None:
    """Send the messages of a file that export wrote."""
    form = form or os.path.splitext(source)[1].lstrip(".")
    if form not in FORMATS:
        raise click.BadParameter(f"the name of {source} does not end with a format", param_hint="--format")
    with open(source, "rb") as file:
        run(_import, connection, file, topic, form, skip, as_json)


async def _import(connection: Connection, file: IO[bytes], topic: str, form: str, skip: int, as_json: bool) -> None:
    from pyrmq_core import Producer
    from pyrmq_core.tools.cli.line_sending import PRODUCER_GROUP
    from pyrmq_core.tools.cli.message_lines import LineForm
    from pyrmq_core.tools.cli.progress import progress_line

    source = str(file.name)
    async with (
        connection.client() as client,
        Producer(
            PRODUCER_GROUP, client=client, namespace=connection.namespace, send_timeout=connection.timeout
        ) as producer,
    ):
        with progress_line("messages stored", os.fstat(file.fileno()).st_size) as line:
            rows = READERS[form](file, source, LineForm(topic, {}, as_json=True), skip)
            importing = _Import(producer, await producer.message_queues(topic), source, skip)
            try:
                while part := importing.next_part(rows):
                    await importing.send(part)
                    line.update(importing.stored, file.tell())
            finally:
                line.close()
                importing.say_if_interrupted()
    change = [{"topic": topic, "messages": importing.stored, "file": source}]
    report(f"{importing.stored:,} messages of {source} are stored in {topic}", change, as_json=as_json)


class _Import:
    """The state of one import: the queue that each message is sent to, and the number of messages stored so far."""

    def __init__(self, producer: Producer, queues: Sequence[MessageQueue], source: str, skip: int) -> None:
        self._producer = producer
        self._queues = queues
        self._source = source
        self._queue_of: dict[Origin, MessageQueue | None] = {None: None}
        self._read, self._under_way = skip, 0
        self.stored = 0

    def next_part(self, rows: Iterator[RowMessage]) -> dict[MessageQueue | None, list[Message]]:
        """Returns the next messages of the file, grouped by the queue to send them to, or {} at its end."""
        part: dict[MessageQueue | None, list[Message]] = {}
        size = count = 0
        try:
            for origin, message in rows:
                queue = self._queue_for(origin) if message.lite_topic is None else None  # its lite topic selects it
                part.setdefault(queue, []).append(message)
                size += len(message.body) + sum(len(name) + len(text) for name, text in message.properties.items())
                count += 1
                if count == PART_MESSAGES or size >= PART_BYTES:
                    break
        except (RocketMQError, ValueError, RecursionError, csv.Error) as error:
            if not isinstance(error, RocketMQError):
                error = InvalidMessage(str(error))
            again = f" (--skip {self._read} begins there)" if self._read else ""
            error.add_note(
                f"{self._source}, row {self._read + count + 1}; {self.stored:,} messages are stored, all before row "
                f"{self._read + 1}{again}"
            )
            raise error from None
        self._read += count
        self._under_way = count
        return part

    async def send(self, part: dict[MessageQueue | None, list[Message]]) -> None:
        """Sends the messages of all queues at the same time, in order within each queue.

        Raises `ClickException` if a send failed, after all other queues have ended.
        """
        import trio

        errors: list[RocketMQError] = []
        first = self._read - self._under_way + 1
        before = self.stored
        async with trio.open_nursery() as nursery:
            for queue, messages in part.items():
                nursery.start_soon(self._send_in_order, queue, messages, errors)
        lost = self._under_way - (self.stored - before)
        self._under_way = 0
        if errors:
            perhaps = any(outcome is not Outcome.NOT_STORED for error in errors for outcome in _outcomes(error))
            doubt = ", some of them perhaps stored (sending them again may store second copies)" if perhaps else ""
            raise click.ClickException(
                visible_text(
                    f"{self._source}, rows {first} to {self._read}: {errors[0]}; {self.stored:,} messages are stored, "
                    f"{lost:,} of these rows are not{doubt}; nothing after row {self._read} was sent: --skip "
                    f"{first - 1} sends these rows again, --skip {self._read} the rows after them"
                )
            )

    def say_if_interrupted(self) -> None:
        if self._under_way:
            click.echo(
                f"interrupted: {self.stored:,} messages are stored, up to {self._under_way:,} more perhaps; nothing "
                f"after row {self._read} was sent: --skip {self._read - self._under_way} sends the rows that are "
                f"perhaps stored again, --skip {self._read} the rows after them",
                err=True,
            )

    async def _send_in_order(
        self, queue: MessageQueue | None, messages: list[Message], errors: list[RocketMQError]
    ) -> None:
        from pyrmq_core.tools.cli.line_sending import is_sent_singly

        try:
            for alone, run_of in itertools.groupby(messages, is_sent_singly):
                for together in ([message] for message in run_of) if alone else (list(run_of),):
                    if len(together) == 1:
                        await self._producer.send(together[0], queue=queue)
                    else:
                        await self._producer.send_batch(together, queue=queue)
                    self.stored += len(together)
        except RocketMQError as error:
            if isinstance(error, BatchFailed):
                self.stored += sum(len(sent) for sent in error.parts if isinstance(sent, Sequence))
            errors.append(error)

    def _queue_for(self, origin: Origin) -> MessageQueue | None:
        if origin not in self._queue_of:
            same = [queue for queue in self._queues if (queue.broker_name, queue.queue_id) == origin]
            # The queue depends only on the origin. Rows that are sent later with --skip therefore go to the same queue.
            number = 0 if origin is None else zlib.crc32(origin[0].encode(errors="replace")) + origin[1]
            self._queue_of[origin] = same[0] if same else self._queues[number % len(self._queues)]
        return self._queue_of[origin]


def _outcomes(error: RocketMQError) -> Iterator[Outcome]:
    parts = error.parts if isinstance(error, BatchFailed) else (error,)
    yield from (failed.outcome for failed in parts if isinstance(failed, SendFailed))


def _json_lines(file: IO[bytes], source: str, form: LineForm, skip: int) -> Iterator[RowMessage]:
    from pyrmq_core.tools.cli.message_lines import members_of_line

    for line in itertools.islice(_filled_lines(file), skip, None):
        members = members_of_line(line)
        yield _origin_of(members) if isinstance(members, dict) else None, form.message(line)


def _filled_lines(file: IO[bytes]) -> Iterator[bytes]:
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise InvalidMessage(f"the line has more than {MAX_LINE_BYTES} bytes; are these JSON objects, one a line?")
        if line := line.strip():
            yield line


def _csv_rows(file: IO[bytes], source: str, form: LineForm, skip: int) -> Iterator[RowMessage]:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    head = file.readline().removeprefix(codecs.BOM_UTF8)  # spreadsheets write a byte-order mark
    rows = csv.DictReader((line.decode() for line in itertools.chain([head], file)), strict=True)
    for row in itertools.islice(rows, skip, None):
        if None in row or None in row.values():
            raise InvalidMessage("the row has not as many values as the head has names; is the file cut?")
        members: dict[str, Any] = {name: text for name, text in row.items() if text or name == "body"}
        for name in ("queueId", "flag"):
            if name in members:
                members[name] = _cell(name, members[name], int)
        if "properties" in members:
            members["properties"] = _cell("properties", members["properties"], json.loads)
        yield _origin_of(members), form.message(json.dumps(members).encode())


def _cell(name: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"column {name} is {shortened(text)}: {error}") from None


def _parquet_rows(file: IO[bytes], source: str, form: LineForm, skip: int) -> Iterator[RowMessage]:
    from pyrmq_core.client.arrow_library import columnar

    columnar()  # raises with the missing extra's name
    from pyrmq_core.columnar.parquet import read_rows

    for row in itertools.islice(read_rows(file, source), skip, None):
        yield _origin_of(row), _message_of(row, form.topic)


def _message_of(row: dict[str, Any], topic: str) -> Message:
    from pyrmq_core.protocol.messages.properties import LITE_TOPIC
    from pyrmq_core.tools.cli.message_lines import checked_message

    body = row["body"].encode() if isinstance(row["body"], str) else row["body"]
    if not isinstance(body, bytes):
        raise _unfit("body", body, "bytes or a text")
    for name in ("tags", "keys", "shardingKey", "liteTopic"):
        value = row.get(name)
        if not isinstance(value, str | None) and not (name == "keys" and _are_texts(value)):
            raise _unfit(name, value, "a text")
    if not isinstance(flag := row.get("flag") or 0, int) or isinstance(flag, bool):
        raise _unfit("flag", flag, "a whole number")
    properties = row.get("properties") or ()
    try:
        pairs = dict(properties)
    except (TypeError, ValueError):
        pairs = {"": None}
    if not _are_texts([*pairs, *pairs.values()]):
        raise _unfit("properties", properties, "a map of texts to texts")
    return checked_message(
        Message(
            topic,
            body,
            tags=row.get("tags"),
            keys=row.get("keys"),
            sharding_key=row.get("shardingKey"),
            lite_topic=row.get("liteTopic") or pairs.pop(LITE_TOPIC, None),  # a property in earlier exports
            properties=pairs,
            flag=flag,
        )
    )


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _unfit(column: str, value: object, kinds: str) -> InvalidMessage:
    shown = "null" if value is None else f"{shortened(value)} ({type(value).__name__})"
    return InvalidMessage(f"column {column} is {shown}; it has to be {kinds}")


def _origin_of(members: dict[str, Any]) -> Origin:
    match members:
        case {"brokerName": str() as broker_name, "queueId": int() as queue_id}:
            return broker_name, queue_id
    return None


READERS: Final[dict[str, Callable[[IO[bytes], str, LineForm, int], Iterator[RowMessage]]]] = {
    "jsonl": _json_lines,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
