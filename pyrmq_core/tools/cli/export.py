"""`pyrmq export`: copies a part of a topic to a file, which appears only when it is complete.

The file is written under another name in the same folder and renamed at the end. The file has the queues one after
another, each in order; memory does not grow with the part.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, Final

import click

from pyrmq_core import MessageExt, OffsetRange, RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.formats import JSON_FIELDS, json_line, members_of
from pyrmq_core.tools.cli.name_completion import topic_names
from pyrmq_core.tools.cli.search import PATIENCE_TIMEOUTS, Part, part_options, ranges_to_read
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option, report

if TYPE_CHECKING:  # loaded by the command that runs, not by its help
    from pyrmq_core.filtering.tags import TagFilter
    from pyrmq_core.protocol.messages.payload import RawPull

FORMATS: Final = ("jsonl", "parquet", "csv")
CSV_FIELDS: Final = (*JSON_FIELDS, "properties", "body", "bodyBase64")


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@part_options
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="parquet needs the extra arrow.")
@click.option("--to", "target", type=click.Path(dir_okay=False), required=True, help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace a file of this name.")
@json_option
def export(
    topic: str, connection: Connection, part: Part, form: str, target: str, overwrite: bool, as_json: bool
) -> None:
    """Copy messages of a topic to a file."""
    if os.path.lexists(target) and not (overwrite and os.path.isfile(target)):
        hint = "--overwrite replaces it" if os.path.isfile(target) else "it is no file"
        raise click.BadParameter(f"{target} exists: {hint}", param_hint="--to")
    run(_export, connection, topic, part, form, target, overwrite, as_json)


async def _export(
    connection: Connection, topic: str, part: Part, form: str, target: str, overwrite: bool, as_json: bool
) -> None:
    import trio

    from pyrmq_core import ReadWindow
    from pyrmq_core.client.consumer.group.subscriptions import filter_of
    from pyrmq_core.filtering.tags import TagFilter
    from pyrmq_core.tools.cli.progress import progress_line

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
                closing(COPIES[form](file, tags)) as copy,
            ):
                async with consumer.read_ranges(ranges, tags=part.tags, sql=part.sql, window=window) as lists:
                    position = 0
                    async for pulls in lists:
                        done += copy.add(pulls)
                        position += sum(pull.next_offset - pull.start for pull in pulls)
                        line.update(done, position)
                        await trio.lowlevel.checkpoint()
        except RocketMQError as error:
            error.add_note(f"{done:,} messages were read; {target} is not written")
            raise
        except OSError as error:
            raise click.ClickException(
                visible_text(f"{target}: {error.strerror or error}, after {done:,} messages; it is not written")
            ) from error
        finally:
            if trio.current_effective_deadline() == -math.inf:
                click.echo(visible_text(f"interrupted: {done:,} messages were read; {target} is not written"), err=True)
    rows = [{"topic": topic, "messages": done, "file": target}]
    report(f"{done:,} messages of {topic} are in {target}", rows, as_json=as_json)


@contextmanager
def _written_whole(target: str, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yields a file in the folder of `target`, renamed to `target` at the end, and removed after a failure."""
    part = f"{target}.{os.getpid()}.part"
    file = open(part, "xb")  # noqa: SIM115 - one that is there is another's, and stays
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


class LinesCopy:
    """A text file of messages, each in the form that `write` returns."""

    def __init__(
        self, file: IO[bytes], tags: TagFilter, writing: Callable[[Any], Callable[[MessageExt], object]]
    ) -> None:
        self._tags = tags
        self._text = TextIOWrapper(file, "utf-8", newline="", write_through=False)
        self._write = writing(self._text)

    def add(self, pulls: list[RawPull]) -> int:
        """Writes the messages of the pulls; returns their number."""
        from pyrmq_core.protocol.messages.payload import decode

        count = 0
        for pull in pulls:
            for message in decode(pull, OffsetRange(pull.start, pull.next_offset)):
                if self._tags.matches(message.tags):
                    self._write(message)
                    count += 1
        return count

    def close(self) -> None:
        """Writes the rest of the buffer, and leaves the file open."""
        self._text.detach()


class ParquetCopy:
    """The output as a Parquet file, written by columns."""

    def __init__(self, file: IO[bytes], tags: TagFilter) -> None:
        from pyrmq_core.client.arrow_library import columnar

        self._decode_batches = columnar().decode_batches
        from pyrmq_core.columnar.parquet import SCHEMA, ParquetWriter

        self._tags = tags
        self._schema = SCHEMA
        self._writer = ParquetWriter(file)

    def add(self, pulls: list[RawPull]) -> int:
        """Writes the messages of the pulls; returns their number."""
        count = 0
        for decoded in self._decode_batches(pulls, self._schema, tags=self._tags):
            self._writer.write(decoded.batch)
            count += decoded.batch.num_rows
        return count

    def close(self) -> None:
        """Writes the footer of the Parquet file."""
        self._writer.close()


def _json_lines(text: Any) -> Callable[[MessageExt], object]:
    return lambda message: text.write(json_line(message) + "\n")


def _csv_rows(text: Any) -> Callable[[MessageExt], object]:
    writer = csv.DictWriter(text, CSV_FIELDS, restval="")
    writer.writeheader()

    def write(message: MessageExt) -> None:
        members = members_of(message)
        writer.writerow({**members, "properties": json.dumps(members["properties"], ensure_ascii=False)})

    return write


COPIES: Final[dict[str, Callable[[IO[bytes], Any], LinesCopy | ParquetCopy]]] = {
    "jsonl": lambda file, tags: LinesCopy(file, tags, _json_lines),
    "csv": lambda file, tags: LinesCopy(file, tags, _csv_rows),
    "parquet": ParquetCopy,
}
