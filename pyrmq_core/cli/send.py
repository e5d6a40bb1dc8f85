"""`pyrmq send` from standard input: one message per line, many under way, with the results in the order of lines."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import click
import trio

from pyrmq_core import Message, Producer, RocketMQError, SendResult
from pyrmq_core.client.producer.bulk.pending_sends import PendingSend

MAX_UNDER_WAY: Final = 256
CHUNK_BYTES: Final = 65536
# Above the 4 MiB of a message; a longer line is not read to its end.
MAX_LINE_BYTES: Final = 8 * 1024 * 1024


@dataclass
class _Progress:
    """The state of the lines: the first that failed, how many failed, the last that was sent, and the blank ones."""

    first: tuple[int, str] | None = None
    failed: int = 0
    last: int = 0
    blank: list[int] = field(default_factory=list)
    reading: trio.CancelScope = field(default_factory=trio.CancelScope)

    def fail(self, number: int, error: RocketMQError) -> None:
        """Ends reading; sends under way are waited for."""
        self.failed += 1
        if self.first is None or number < self.first[0]:
            self.first = number, str(error)
        self.reading.cancel()


async def send_lines(
    producer: Producer, message: Callable[[bytes], Message], descriptor: int, *, as_json: bool
) -> None:
    """Sends each line of the file; blank lines are left out, and their numbers are printed at the end.

    After a failed line no further line is read, and the sends under way are waited for: every printed result is that of
    a stored message. Raises `ClickException` with the first failed line and the number of others.
    """
    progress = _Progress()
    room = trio.Semaphore(MAX_UNDER_WAY)
    give, take = trio.open_memory_channel[tuple[int, PendingSend]](MAX_UNDER_WAY)
    try:
        with take:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_print_results, take, room, progress, as_json)
                async with give, aclosing(_lines(descriptor)) as lines:
                    with progress.reading:
                        async for number, content in lines:
                            if not content:
                                progress.blank.append(number)
                                continue
                            await room.acquire()
                            progress.last = number
                            try:
                                give.send_nowait((number, await producer.send_soon(message(content))))
                            except RocketMQError as error:
                                progress.fail(number, error)
                                break
    finally:
        if progress.blank:
            _say_blank(progress.blank)
    if progress.first is not None:
        more = f" ({progress.failed - 1} more lines failed)" if progress.failed > 1 else ""
        raise click.ClickException(
            f"line {progress.first[0]}: {progress.first[1]}{more}; nothing after line {progress.last} was sent"
        )


def say_result(result: SendResult, as_json: bool) -> None:
    """Prints where a message is stored."""
    where = result.message_queue
    if as_json:
        members = {"msgId": result.msg_id, "status": result.status.name, "brokerName": where.broker_name}
        click.echo(json.dumps({**members, "queueId": where.queue_id, "queueOffset": result.queue_offset}))
    else:
        click.echo(f"{result.msg_id} {result.status.name} {where} offset {result.queue_offset}")


async def _print_results(
    take: trio.MemoryReceiveChannel[tuple[int, PendingSend]], room: trio.Semaphore, progress: _Progress, as_json: bool
) -> None:
    async for number, pending in take:
        try:
            say_result(await pending.wait(), as_json)
        except RocketMQError as error:
            progress.fail(number, error)
        room.release()


async def _lines(descriptor: int) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yields numbered lines without their ends, as soon as they come, also from a terminal or a slow program.

    A thread reads, so that the event loop goes on; it is abandoned when the command ends before the input does.
    """
    rest, number = b"", 0
    while chunk := await trio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES, abandon_on_cancel=True):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield number, line.rstrip(b"\r")
        if len(rest) > MAX_LINE_BYTES:  # which is refused as a message
            break
    if rest:
        yield number + 1, rest.rstrip(b"\r")


def _say_blank(blank: list[int]) -> None:
    one = len(blank) == 1
    shown = ", ".join(map(str, blank[:5])) + (", ..." if len(blank) > 5 else "")
    click.echo(
        f"line{'' if one else 's'} {shown} {'is' if one else 'are'} blank and left out "
        f"({len(blank)}): RocketMQ takes no empty body",
        err=True,
    )
