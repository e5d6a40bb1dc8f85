"""`Changes`: the changes that the page can make, if allowed, each after a confirmation that is valid once.

A form is first answered with a page that announces the change, and a ticket. Only the ticket makes the change, so
reloading a page changes nothing a second time.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyrmq_core import Admin, Message, MessageExt, MessageQueue, Producer
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, check_group, check_topic
from pyrmq_core.protocol.messages.payload import check_message
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.messages import missing
from pyrmq_core.tools.web.pages.page import Shown, whole_number
from pyrmq_core.tools.web.rendering import link
from pyrmq_core.tools.web.zones import UTC_ZONE, form_zone

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import OffsetChange

# The most waiting confirmations; a new one replaces the oldest, since each may hold a body of some MiB.
MAX_WAITING: Final = 16
# The most queues of a reset that are shown one by one.
MOST_QUEUES: Final = 256

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A prepared change: its sentence for the confirmation, its action, and the page that follows it.

    `offsets` are the changes of a reset, as they are before it.
    """

    sentence: str
    perform: Callable[[], Awaitable[Result]]
    back: str
    offsets: tuple[OffsetChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The sentence about a change that was made, and the commands that take it back."""

    sentence: str
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueMove:
    """One queue's change in a reset: messages to be consumed again (`repeated`), or never by this group (`skipped`)."""

    change: OffsetChange

    @property
    def before(self) -> int | None:
        before = self.change.before
        return None if before is None or before < 0 else before

    @property
    def repeated(self) -> int:
        return 0 if self.before is None else max(0, self.before - self.change.after)

    @property
    def skipped(self) -> int:
        return 0 if self.before is None else max(0, self.change.after - self.before)


class Changes:
    """The changes of one page server, and the confirmations that wait for a click."""

    def __init__(self, admin: Admin, producer: Producer, look_ups: LookUps) -> None:
        self._admin = admin
        self._producer = producer
        self._look_ups = look_ups
        self._waiting: dict[str, Change] = {}

    async def prepare(self, path: str, form: Form) -> Shown:
        """Returns the page that announces the form's change.

        Raises `InvalidArgument` for a form with faults, and `NoRoute` for a topic that is not there.
        """
        change = await PREPARED_BY[path](self, form)
        ticket = secrets.token_urlsafe(16)
        self._waiting[ticket] = change
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        moves = [QueueMove(offsets) for offsets in change.offsets]
        values = {"sentence": change.sentence, "ticket": ticket, "back": change.back, "moves": moves[:MOST_QUEUES]}
        totals = {"repeated": sum(move.repeated for move in moves), "skipped": sum(move.skipped for move in moves)}
        return Shown("confirm.html", {**values, **totals, "queues": len(moves)})

    async def perform(self, form: Form) -> Shown:
        """Makes the confirmed change, and returns a page that reports it. A confirmation is valid once."""
        change = self._waiting.pop(form.get("ticket", ""), None)
        if change is None:
            raise InvalidArgument("this confirmation was used before, or is too old; look whether the change is there")
        result = await change.perform()
        self._look_ups.forget()
        return Shown("done.html", {"result": result.sentence, "undo": result.undo, "back": change.back})

    async def _send(self, form: Form) -> Change:
        topic = form.get("topic", "").strip()
        check_topic(topic)
        message = Message(
            topic,
            form.get("body", "").replace("\r\n", "\n").encode(errors="replace"),
            tags=form.get("tags", "").strip() or None,
            keys=form.get("keys", "").strip() or None,
        )
        check_message(message)
        await self._look_ups.topic_stats(topic)  # a broker would create a topic that is not there

        async def perform() -> Result:
            result = await self._producer.send(message)
            position = f"{result.message_queue} at {result.queue_offset}"
            return Result(f"Stored in {position} as {result.msg_id}: {result.status.name}.")

        size = len(message.body)
        return Change(f"Send a message of {size:,} bytes to topic {topic}.", perform, link("/topic", topic=topic))

    async def _reset(self, form: Form) -> Change:
        group, topic = (form.get(name, "").strip() for name in ("group", "topic"))
        check_group(group)
        check_topic(topic)
        written = form.get("to", "").strip()
        zone = form_zone(form.get("zone", ""), UTC_ZONE)
        to = written if written in ("earliest", "latest") else zone.read(written, "to")
        if to is None:
            raise InvalidArgument("to is empty; write earliest, latest or a time")

        plan = await self._admin.groups.preview_reset(group, topic, to)  # type: ignore[arg-type] # one of both words

        async def perform() -> Result:
            changes = await self._admin.groups.reset(group, topic, to)  # type: ignore[arg-type] # one of both words
            moved = sum(1 for change in changes if change.before != change.after)
            return Result(f"{moved} of {len(changes)} queues of {topic} have a new offset.", undo_of(group, changes))

        sentence = f"Reset group {group} to {to if isinstance(to, str) else zone.write(to)} in topic {topic}."
        return Change(sentence, perform, link("/group", group=group), plan)

    async def _resend(self, form: Form) -> Change:
        group = form.get("group", "").strip()
        check_group(group)
        queue = MessageQueue(DLQ_PREFIX + group, form.get("brokerName", ""), whole_number(form, "queueId"))
        offset = whole_number(form, "offset")

        async def letter() -> MessageExt:
            message = await self._look_ups.at(queue, offset)
            if message is None:
                raise missing(queue, offset)
            return message

        await letter()

        async def perform() -> Result:
            message = await letter()
            result = await self._admin.messages.resend(group, message)
            return Result(f"Sent to {group} again, stored in {result.message_queue} at {result.queue_offset}.")

        sentence = f"Send the dead letter in {queue} at {offset} to group {group} again. It also stays where it is."
        return Change(sentence, perform, link("/dead-letters", group=group))


def undo_of(group: str, changes: Sequence[OffsetChange]) -> tuple[str, ...]:
    moved = [move for move in map(QueueMove, changes) if move.before not in (None, move.change.after)]
    return tuple(
        f"pyrmq group seek {shlex.quote(group)} -t {shlex.quote(queue.topic)} -b {shlex.quote(queue.broker_name)} "
        f"-q {queue.queue_id} -o {move.before}"
        for move in moved
        for queue in (move.change.queue,)
    )


PREPARED_BY: Final[Mapping[str, Callable[[Changes, Form], Awaitable[Change]]]] = {
    "/send": Changes._send,
    "/reset": Changes._reset,
    "/resend": Changes._resend,
}
