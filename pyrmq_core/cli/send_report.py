"""The output of `pyrmq send`: a line a message in the order of the lines, or only their number at the end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import click

from pyrmq_core import MessageQueue, SendResult, SendStatus


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
