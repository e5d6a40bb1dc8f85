"""`pyrmq export`: copies a part of a topic to a file, which appears only when it is complete.

The file is written under another name in the same folder and renamed at the end. It has one queue after another, each
in order. The memory needed does not depend on the number of messages.
"""

from __future__ import annotations

import errno
import glob
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, Final

import click

from pyrmq_core import MessageExt, OffsetRange, RocketMQError
from pyrmq_core.errors import MissingLibrary, RecordError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import topic_names
from pyrmq_core.tools.cli.search import (
    PATIENCE_TIMEOUTS,
    Part,
    part_options,
    ranges_to_read,
    say_unreadable,
    undecodable_option,
)
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option, report
from pyrmq_core.tools.search.written_messages import csv_rows, json_lines

if TYPE_CHECKING:  # imported when the command runs, so that its help is fast
    from pyrmq_core.columnar import DecodedBatch
    from pyrmq_core.filtering.tags import TagFilter
    from pyrmq_core.protocol.messages.payload import RawPull
    from pyrmq_core.protocol.messages.readable import Readable

FORMATS: Final = ("jsonl", "parquet", "csv")
UNDECODABLE_NAMED: Final = 10
QUOTED_CSV: Final = "csv with quoted formulas"
# The longest body that is decoded into Arrow columns, which keep several copies of it.
COLUMN_BODY_BYTES: Final = 16 * 1024 * 1024


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@part_options
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="parquet needs the extra arrow.")
@click.option("--to", "target", type=click.Path(dir_okay=False), required=True, help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace a file of this name.")
@undecodable_option("fail", "skip", "keep", default="fail")
@click.option("--quote-formulas", is_flag=True, help="csv: put ' before cells that a spreadsheet would compute.")
@json_option
def export(
    topic: str,
    connection: Connection,
    part: Part,
    form: str,
    target: str,
    overwrite: bool,
    on_undecodable: str,
    quote_formulas: bool,
    as_json: bool,
) -> None:
    """Copy messages of a topic to a file."""
    if quote_formulas:
        if form != "csv":
            raise click.BadParameter(f"a file of {form} is not computed", param_hint="--quote-formulas")
        form = QUOTED_CSV
    if os.path.lexists(target) and not (overwrite and os.path.isfile(target)):
        hint = "--overwrite replaces it" if os.path.isfile(target) else "it is no file"
        raise click.BadParameter(f"{target} exists: {hint}", param_hint="--to")
    undecodable = Undecodable(on_undecodable)
    run(_export, connection, topic, part, form, target, overwrite, undecodable, as_json)


async def _export(
    connection: Connection,
    topic: str,
    part: Part,
    form: str,
    target: str,
    overwrite: bool,
    undecodable: Undecodable,
    as_json: bool,
) -> None:
    import trio

    from pyrmq_core import ReadWindow
    from pyrmq_core.client.consumer.group.subscriptions import filter_of
    from pyrmq_core.filtering.tags import TagFilter
    from pyrmq_core.tools.cli.progress import progress_line

    _say_unfinished(target)
    wanted = filter_of(part.tags, part.sql)
    tags = wanted if isinstance(wanted, TagFilter) else TagFilter()
    done = 0
    async with ranges_to_read(connection, topic, part) as (consumer, ranges):
        total = sum(offsets.end - offsets.start for _, offsets in ranges)
        window = ReadWindow(patience=PATIENCE_TIMEOUTS * connection.timeout, lends_records=True)
        try:
            with (
                _written_whole(target, overwrite=overwrite) as file,
                progress_line("messages exported", total) as line,
                closing(COPIES[form](file, tags, undecodable)) as copy,
            ):
                async with consumer.read_ranges(ranges, tags=part.tags, sql=part.sql, window=window) as lists:
                    position = 0
                    async for pulls in lists:
                        done += await copy.add(pulls)
                        position += sum(pull.next_offset - pull.start for pull in pulls)
                        line.update(done, position)
        except RocketMQError as error:
            error.add_note(f"{done:,} messages were read; {target} is not written")
            raise
        except OSError as error:
            raise click.ClickException(
                visible_text(
                    f"{error.filename or target}: {error.strerror or error}, after {done:,} messages; it is not written"
                )
            ) from error
        finally:
            if trio.current_effective_deadline() == -math.inf:
                click.echo(visible_text(f"interrupted: {done:,} messages were read; {target} is not written"), err=True)
    rows = [{"topic": topic, "messages": done, "file": target}]
    report(f"{done:,} messages of {topic} are in {target}", rows, as_json=as_json)
    undecodable.end(target)


def _say_unfinished(target: str) -> None:
    """Prints the names of the unfinished files that other exports to `target` left, or are still writing."""
    for path in sorted(glob.glob(f"{glob.escape(target)}.*.part")):
        click.echo(
            visible_text(f"{path} is the unfinished file of another export; remove it if that runs no more"), err=True
        )


@contextmanager
def _written_whole(target: str, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yields a file in the folder of `target`, renamed to `target` at the end, and removed after a failure."""
    part = f"{target}.{os.getpid()}.part"
    file = open(part, "xb")  # noqa: SIM115 - an existing file belongs to another export, and stays
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "it has come meanwhile, and stays")
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


class Undecodable:
    """The treatment of records that cannot be decoded: they are left out, or written as they are stored.

    A record with damaged first bytes is always left out, with the messages behind it in the same answer.
    If the choice is "fail", they are left out, and the command ends with status 1 after the file is complete.
    """

    def __init__(self, choice: str) -> None:
        self._choice = choice
        self._count = self._damaged = 0
        self._errors: list[RocketMQError] = []

    def message(self, item: Readable) -> MessageExt | None:
        if isinstance(item, MessageExt):
            return item
        self._count += 1
        self._damaged += item.message is None
        if len(self._errors) < UNDECODABLE_NAMED:
            self._errors.append(item.error)
        return item.message if self._choice == "keep" else None

    def end(self, target: str) -> None:
        """Prints the number of undecodable records and their first errors. With "fail" it raises the first error."""
        if self._choice == "fail" and self._errors:
            error = self._errors[0]
            others = "which has all others" if not self._damaged else "nor are the offsets that are not read"
            error.add_note(
                f"records that cannot be read and are not in {target}, {others}: {self._count:,}. "
                "--on-undecodable skip accepts that, keep takes their bodies as they are stored"
            )
            raise error
        what = "left out" if self._choice == "skip" else "kept as they are stored"
        if self._damaged and self._choice == "keep":
            what += f", but for {self._damaged:,} damaged ones with all behind them"
        say_unreadable(self._count, [str(error) for error in self._errors], what)


class Copy:
    """The base class of the file writers. A writer works in a thread, and decompresses one body at a time."""

    def __init__(self, tags: TagFilter, undecodable: Undecodable) -> None:
        self._tags = tags
        self._undecodable = undecodable

    async def add(self, pulls: Sequence[RawPull]) -> int:
        """Writes the messages that pulls returned, and returns their number."""
        from pyrmq_core.client.unpacking import in_steps
        from pyrmq_core.protocol.messages.readable import iterate_readable

        count = 0
        for pull in pulls:
            own = OffsetRange(pull.start, max(pull.start, pull.next_offset))
            async with aclosing(in_steps(iterate_readable(pull, own, allow_gaps=False), self._copied)) as steps:
                async for copied in steps:
                    count += len(copied)
        return count

    def _copied(self, item: Readable) -> bool | None:
        message = self._undecodable.message(item)
        if message is None or not self._tags.matches(message.tags):
            return None
        self.write(message)
        return True

    def write(self, message: MessageExt) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class LinesCopy(Copy):
    """A text file of messages. `writing` returns the function that writes a message in the file's format."""

    def __init__(
        self,
        file: IO[bytes],
        tags: TagFilter,
        undecodable: Undecodable,
        writing: Callable[[Any], Callable[[MessageExt], object]],
    ) -> None:
        super().__init__(tags, undecodable)
        self._text = TextIOWrapper(file, "utf-8", newline="", write_through=False)
        self._write = writing(self._text)

    def write(self, message: MessageExt) -> None:
        self._write(message)

    def close(self) -> None:
        # The text layer is only detached, since the caller closes the file.
        self._text.detach()


class ParquetCopy(Copy):
    """A Parquet file. It is written as Arrow columns, or message by message if a body is long or undecodable."""

    def __init__(self, file: IO[bytes], tags: TagFilter, undecodable: Undecodable) -> None:
        from pyrmq_core.client.arrow_library import columnar

        super().__init__(tags, undecodable)
        self._decode_batches = columnar().decode_batches
        from pyrmq_core.columnar.decoding.decode_by_row import batch_of
        from pyrmq_core.columnar.parquet import SCHEMA, ParquetWriter

        self._batch_of = batch_of
        self._schema = SCHEMA
        self._writer = ParquetWriter(file)

    async def add(self, pulls: Sequence[RawPull]) -> int:
        from pyrmq_core.client.unpacking import in_thread

        count, unwritten = 0, pulls
        batches = self._decode_batches(pulls, self._schema, tags=self._tags, max_body_bytes=COLUMN_BODY_BYTES)
        try:
            while (written := await in_thread(self._write_next, batches)) is not None:
                number, unwritten = written
                count += number
        except (RecordError, MissingLibrary):
            return count + await super().add(unwritten)
        return count

    def _write_next(self, batches: Iterator[DecodedBatch]) -> tuple[int, Sequence[RawPull]] | None:
        """Writes the next batch. Returns the number of its messages and the remaining pulls, or None at the end."""
        decoded = next(batches, None)
        if decoded is None:
            return None
        self._writer.write(decoded.batch)
        return decoded.batch.num_rows, decoded.rest

    def write(self, message: MessageExt) -> None:
        self._writer.write(self._batch_of([message], self._schema))

    def close(self) -> None:
        self._writer.close()


COPIES: Final[dict[str, Callable[[IO[bytes], Any, Undecodable], Copy]]] = {
    "jsonl": lambda file, tags, undecodable: LinesCopy(file, tags, undecodable, json_lines),
    "csv": lambda file, tags, undecodable: LinesCopy(file, tags, undecodable, csv_rows),
    QUOTED_CSV: lambda file, tags, undecodable: LinesCopy(
        file, tags, undecodable, partial(csv_rows, quotes_formulas=True)
    ),
    "parquet": ParquetCopy,
}
