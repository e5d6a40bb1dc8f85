"""`Changes`: the changes that users may make on the web page, if changes are allowed at all.

A submitted form changes nothing yet: the response is a page that describes the change and asks to confirm it. The
confirmation carries a ticket, a random text that is valid once, so reloading a page does not repeat the change. Before
a confirmed change is made, it is prepared again. If the description then differs, the user is asked again.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import trio

from pyrmq_core import Admin, Message, MessageExt, MessageQueue, Producer
from pyrmq_core.client.admin.values import OffsetChange
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.texts import Text, text_of
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.model import OffsetRange, TopicConfig
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, check_group, check_topic
from pyrmq_core.protocol.messages.payload import check_message
from pyrmq_core.tools.web.change_log import DONE, FAILED, ChangeLog, LogEntry, Viewer
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.messages import missing
from pyrmq_core.tools.web.pages.page import MAX_DIGITS, Shown, whole_number
from pyrmq_core.tools.web.pages.topics import ROCKETMQ, topic_kind
from pyrmq_core.tools.web.prepared import Announced, Change, Form, Result, check_whole
from pyrmq_core.tools.web.rendering import link
from pyrmq_core.tools.web.resends import Resends, number_of
from pyrmq_core.tools.web.setting_changes import (
    check_users_group,
    create_commands,
    group_change,
    group_command,
    topic_change,
    topic_command,
)
from pyrmq_core.tools.web.zones import UTC_ZONE, Zone, form_zone

if TYPE_CHECKING:
    from datetime import datetime

# The most changes that wait for a confirmation. A new one replaces the oldest, since each may have a body of some MiB.
MAX_WAITING: Final = 16
# The most changes that can be undone, as many as the log has in memory.
MAX_UNDONE: Final = 100
# The most rows that a confirmation shows: queues of a reset, or settings.
MOST_ROWS: Final = 256
SEEKS_AT_ONCE: Final = 8
# Stands for the offset of a deleted group.
NO_OFFSET: Final = -1
MOST_NAMES: Final = 5
MAX_RATE: Final = 100
CHOSEN: Final = "letter "

Item = TypeVar("Item")


class Changes:
    """The changes of one page server: those that users request, confirm and undo."""

    def __init__(self, admin: Admin, producer: Producer, look_ups: LookUps, log: ChangeLog, resends: Resends) -> None:
        self.log = log
        self.resends = resends
        self._admin = admin
        self._producer = producer
        self._look_ups = look_ups
        self._waiting: dict[str, tuple[str, Form, Announced]] = {}
        self._undone: dict[str, Result] = {}

    async def prepare(self, path: str, form: Form) -> Shown:
        """Returns a page that describes the change in a form and asks to confirm it. Nothing is changed yet.

        `path` is the form's address. Raises `InvalidArgument` for invalid fields, `NoRoute` for an unknown topic.
        """
        return self._announce(path, form, await PREPARED_BY[path](self, form))

    def _announce(self, path: str, form: Form, change: Change, *, is_other: bool = False) -> Shown:
        ticket = _kept(self._waiting, (path, {**form, **change.fixed}, change.announced), MAX_WAITING)
        return Shown("confirm.html", {"change": change, "ticket": ticket, "is_other": is_other, "most": MOST_ROWS})

    async def perform(self, form: Form, viewer: Viewer) -> Shown:
        """Makes the change that `form` confirms by its ticket, and returns a page with its result.

        If the prepared change differs from the one that was shown, changes nothing and asks again. Raises
        `ChangeNotLogged`, with nothing changed, if the log cannot be written.
        """
        waiting = self._waiting.pop(form.get("ticket", ""), None)
        if waiting is None:
            raise InvalidArgument(
                Text("this confirmation was used before, or is too old; look whether the change is there")
            )
        path, wanted, announced = waiting
        try:
            change = await PREPARED_BY[path](self, wanted)
        except RocketMQError as error:
            await self.log.end(await self.log.begin(viewer, announced[0]), FAILED, text_of(error))
            raise
        if change.announced != announced and not form.get("anyway"):
            return self._announce(path, wanted, change, is_other=True)
        entry = await self.log.begin(viewer, change.sentence)
        try:
            result = await change.perform()
        except RocketMQError as error:
            offsets = change.offsets
            try:
                offsets = await self._offsets_moved(path, wanted, change)
            finally:  # the page's deadline may end the look-up
                if self._keep(entry, Result("", change.group, offsets)):
                    error.add_note(Text("what was changed before can be taken back: see the changes"))
                await self.log.end(entry, FAILED, text_of(error))
            raise
        except BaseException:
            self._keep(entry, Result("", change.group, change.offsets))
            await self.log.end(entry, FAILED, Text("it was broken off, and may be made in part"))
            raise
        finally:
            self._look_ups.forget()
        undo = self._keep(entry, result)
        await self.log.end(entry, DONE, result.sentence)
        values = {
            "result": result.sentence,
            "undo": undo or result.commands,
            "ticket": entry.ticket,
            "back": change.back,
            "warnings": change.warnings,
        }
        return Shown("done.html", values)

    async def _offsets_moved(self, path: str, form: Form, change: Change) -> tuple[OffsetChange, ...]:
        """Returns the offset changes of a failed change, with each queue's present offset as `after`.

        If the present offsets cannot be looked up, the changes are returned as they were planned.
        """
        try:
            again = await PREPARED_BY[path](self, form) if change.offsets else change
        except RocketMQError:
            return change.offsets
        now = {offsets.queue: offsets.before for offsets in again.offsets}
        moved = ((offsets, now.get(offsets.queue)) for offsets in change.offsets)
        return tuple(offsets if at is None else replace(offsets, after=at) for offsets, at in moved)

    def _keep(self, entry: LogEntry, result: Result) -> tuple[str, ...]:
        entry.ticket = _kept(self._undone, result, MAX_UNDONE) if result.undo else ""
        return result.undo

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
        await self._admin.topics.stats(topic)  # raises for a missing topic, which a broker would create

        async def perform() -> Result:
            result = await self._producer.send(message)
            values = {"queue": result.message_queue, "offset": result.queue_offset, "status": result.status.name}
            return Result(Text("Stored in {queue} at {offset} as {id}: {status}.", id=result.msg_id, **values))

        sentence = Text("Send a message of {size:,} bytes to topic {topic}.", size=len(message.body), topic=topic)
        return Change(sentence, perform, link("/topic", topic=topic))

    async def _reset(self, form: Form) -> Change:
        group, topic = (form.get(name, "").strip() for name in ("group", "topic"))
        check_group(group)
        check_topic(topic)
        check_users_group(group)
        queue, zone = _queue(topic, form.get("queue", "").strip()), form_zone(form.get("zone", ""), UTC_ZONE)
        written = form.get("to", "").strip()
        to = _target(written, zone)

        offsets = await self._admin.groups.preview_reset(group, topic, to, queue=queue)

        async def perform() -> Result:
            if queue is not None:
                return _moved(group, [await self._admin.groups.seek(group, queue, offsets[0].after)])
            assert not isinstance(to, int)  # the plan refuses an offset without a queue
            return _moved(group, await self._admin.groups.reset(group, topic, to))

        shown = f"{to}" if isinstance(to, str | int) else zone.write(to)
        fixed = {"to": f"{to}" if isinstance(to, str | int) else to.isoformat()}
        where = Text("topic {topic}", topic=topic) if queue is None else f"{queue}"
        sentence = Text("Reset group {group} to {shown} in {where}.", group=group, shown=shown, where=where)
        return Change(sentence, perform, link("/group", group=group), offsets, group=group, fixed=fixed)

    async def _undo(self, form: Form) -> Change:
        """Returns a change that restores a group's offsets from before an earlier change, whose ticket is in `form`."""
        former = self._undone.get(form.get("ticket", ""))
        if former is None:
            raise InvalidArgument(Text("the way back is no longer kept; the log of changes may have its offsets"))
        moves = former.moves
        topics = {move.queue.topic for move in moves}
        current = {
            row.queue: row.consumer_offset
            for topic in topics
            for row in (await self._admin.groups.progress(former.group, topic=topic)).queues
            if row.consumer_offset >= 0
        }
        offsets = tuple(replace(move, before=current.get(move.queue), after=move.before or 0) for move in moves)

        async def perform() -> Result:
            async def seek(move: OffsetChange) -> OffsetChange:
                return await self._admin.groups.seek(former.group, move.queue, move.before or 0)

            changes = await query_many(moves, seek, trio.CapacityLimiter(SEEKS_AT_ONCE))
            return _moved(former.group, tuple(changes.values()))

        values = {"group": former.group, "number": len(moves), "topics": ", ".join(sorted(topics))}
        sentence = Text("Give group {group} its former offsets in {number} queues of {topics}.", **values)
        return Change(sentence, perform, link("/group", group=former.group), offsets, group=former.group)

    async def _resend(self, form: Form) -> Change:
        group = form.get("group", "").strip()
        check_group(group)
        marked = [form["one"]] if form.get("one") else [name[len(CHOSEN) :] for name in form if name.startswith(CHOSEN)]
        places = [] if form.get("all") else [_place(group, name) for name in marked]
        if not places and not form.get("all"):
            raise InvalidArgument(Text("no dead letter is chosen; mark some, or send all again"))
        if len(places) == 1:
            return await self._resend_one(group, places[0][0], places[0][1].start)
        rate = whole_number(form, "rate")
        if not 1 <= rate <= MAX_RATE:
            raise InvalidArgument(Text("rate={rate}: it is 1 to {most} letters a second", rate=rate, most=MAX_RATE))
        letters = places or await self.resends.every(group)
        number = number_of(letters)
        if not number:
            raise InvalidArgument(Text("group {group} has no dead letter that is kept", group=group))

        async def perform() -> Result:
            self.resends.start(group, letters, rate)
            text = Text("{number:,} dead letters of {group} are being sent again; see the changes.", **values)
            return Result(text)

        values = {"number": number, "group": group}
        what = Text("Send all {number:,} dead letters of group {group} to it again", **values)
        if places:
            what = Text("Send the chosen {number:,} dead letters of group {group} to it again", **values)
        speed = {"rate": rate, "seconds": -(-number // rate)}
        sentence = Text("{what}, {rate} a second, which takes {seconds:,} s.", what=what, **speed)
        return Change(sentence, perform, "/changes", warnings=(NO_WAY_BACK,))

    async def _resend_one(self, group: str, queue: MessageQueue, offset: int) -> Change:
        letter = await self._letter(queue, offset)

        async def perform() -> Result:
            result = await self._admin.messages.resend(group, letter)
            values = {"group": group, "queue": result.message_queue, "offset": result.queue_offset}
            return Result(Text("Sent to {group} again, stored in {queue} at {offset}.", **values))

        sentence = Text(
            "Send the dead letter in {queue} at {offset} to group {group} again. It also stays where it is.",
            queue=queue,
            offset=offset,
            group=group,
        )
        return Change(sentence, perform, link("/dead-letters", group=group), warnings=(NO_WAY_BACK,))

    async def _stop(self, _form: Form) -> Change:
        if self.resends.running is None:
            raise InvalidArgument(Text("no dead letters are being sent"))

        async def perform() -> Result:
            self.resends.stop()
            return Result(Text("No further dead letters are sent."))

        return Change(Text("Stop sending dead letters again."), perform, "/changes")

    async def _consume(self, form: Form) -> Change:
        group, member = form.get("group", "").strip(), form.get("member", "").strip()
        check_group(group)
        queue = MessageQueue(form.get("topic", ""), form.get("brokerName", ""), whole_number(form, "queueId"))
        offset = whole_number(form, "offset")
        if not member:
            raise InvalidArgument(Text("no member is chosen"))
        message = await self._letter(queue, offset)

        async def perform() -> Result:
            result = await self._admin.messages.consume_directly(group, message, client_id=member)
            outcome = Text("nothing") if result.consume_result is None else result.consume_result.value
            ms = result.spent_time_ms
            answer = Text("{member} answered {outcome} after {ms:,} ms", member=member, outcome=outcome, ms=ms)
            # The text is the member's own, and may contain values that are masked.
            shows = result.remark and not self._look_ups.masks.any
            return Result(Text("{answer}: {remark}", answer=answer, remark=result.remark) if shows else answer)

        query = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        values = {"member": member, "group": group, "queue": queue, "offset": offset}
        sentence = Text(
            "Have member {member} of group {group} consume the message in {queue} at {offset} now.", **values
        )
        return Change(sentence, perform, link("/message", topic=queue.topic, **query), warnings=(ONCE_MORE,))

    async def _delete(self, form: Form) -> Change:
        topic, group = form.get("topic", "").strip(), form.get("group", "").strip()
        return await (self._delete_topic(topic) if topic else self._delete_group(group))

    async def _delete_topic(self, topic: str) -> Change:
        await self._check_users_topic(topic)
        stats, groups = await self._admin.topics.stats(topic), await self._admin.topics.group_names(topic)
        check_whole({**stats.failures, **groups.failures})
        create = create_commands(await self._admin.preview_topic(TopicConfig(topic, 1, 1)), topic_command)

        async def perform() -> Result:
            await self._admin.delete_topic(topic)
            text = Text("Topic {topic} is deleted. Its messages are gone.", topic=topic)
            return Result(text, commands=create)

        lost = Text("{messages:,} messages in {queues} queues", messages=stats.messages, queues=len(stats.queues))
        names = f"{', '.join(groups.groups[:MOST_NAMES])}{', ...' if len(groups.groups) > MOST_NAMES else ''}"
        values = {"lost": lost, "readers": names or Text("no group")}
        warning = Text(
            "{lost} are lost for good. It is read by: {readers}. A command can make the topic again, empty.", **values
        )
        sentence = Text("Delete topic {topic} with {lost}.", topic=topic, lost=lost)
        ends = frozenset((queue, figures.max_offset) for queue, figures in stats.queues.items())
        return Change(sentence, perform, "/topics", warnings=(warning,), ends=ends)

    async def _delete_group(self, group: str) -> Change:
        check_group(group)
        check_users_group(group)
        members = (await self._admin.groups.describe(group, running_info=False)).members
        if members:
            values = {"group": group, "number": len(members)}
            text = Text("group {group} has {number} members, which would make it again: stop them first", **values)
            raise InvalidArgument(text)
        progress = await self._admin.groups.progress(group)
        check_whole(progress.failures)
        kept = [row for row in progress.queues if row.consumer_offset >= 0]
        former = tuple(OffsetChange(row.queue, row.consumer_offset, NO_OFFSET) for row in kept)
        create = create_commands(await self._admin.groups.preview_create(group, {}), group_command)
        letters = number_of(await self.resends.every(group))

        async def perform() -> Result:
            await self._admin.groups.delete(group)
            text = Text("Group {group} is deleted, with its retries and dead letters.", group=group)
            return Result(text, commands=(*create, *Result("", group, former).undo))

        values = {"group": group, "number": len(former)}
        sentence = Text(
            "Delete group {group} with its offsets in {number} queues, its retries and its dead letters.", **values
        )
        lost = Text(
            "Commands can make the group again with its offsets. "
            "Its retries and its {letters:,} dead letters are lost for good.",
            letters=letters,
        )
        return Change(sentence, perform, "/groups", warnings=(lost,))

    async def _topic_settings(self, form: Form) -> Change:
        await self._check_users_topic(form.get("topic", "").strip())
        return await topic_change(self._admin, form)

    async def _check_users_topic(self, topic: str) -> None:
        check_topic(topic)
        if topic_kind(topic, await self._look_ups.topics()) == ROCKETMQ:
            raise InvalidArgument(Text("topic {topic} is RocketMQ's own", topic=topic))

    async def _letter(self, queue: MessageQueue, offset: int) -> MessageExt:
        message = await self._look_ups.at(queue, offset)
        if message is None:
            raise missing(queue, offset)
        return message


NO_WAY_BACK: Final = Text(
    "What is sent cannot be taken back: the group consumes the copies. The letters stay where they are."
)
ONCE_MORE: Final = Text(
    "It is consumed once more if it was before; offsets do not change. What the member does stays done."
)


def _kept(table: dict[str, Item], item: Item, most: int) -> str:
    """Stores an item in a table under a new random key, which it returns. Drops the oldest item beyond `most`."""
    ticket = secrets.token_urlsafe(16)
    table[ticket] = item
    if len(table) > most:
        del table[next(iter(table))]
    return ticket


def _target(text: str, zone: Zone) -> datetime | int | Literal["earliest", "latest"]:
    match text:
        case "earliest" | "latest":
            return text
    to = whole_number({"to": text}, "to") if text.isascii() and text.isdigit() else zone.read(text, "to")
    if to is None:
        raise InvalidArgument(Text("to is empty; write earliest, latest, a time, or an offset of a queue"))
    return to


def _queue(topic: str, text: str) -> MessageQueue | None:
    """Parses a queue such as `broker-a/0`, or returns None for an empty text."""
    if not text:
        return None
    broker, _, number = text.rpartition("/")
    if not (broker and number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS):
        raise InvalidArgument(Text("queue {queue}: write it as broker-a/0, or leave it empty for all", queue=text))
    return MessageQueue(topic, broker, int(number))


def _place(group: str, text: str) -> tuple[MessageQueue, OffsetRange]:
    name, _, at = text.rpartition("@")
    queue, offset = _queue(DLQ_PREFIX + group, name), whole_number({"offset": at}, "offset")
    if queue is None:
        raise InvalidArgument(Text("{place!r} is no place of a dead letter", place=text))
    return queue, OffsetRange(offset, offset + 1)


def _moved(group: str, changes: Sequence[OffsetChange]) -> Result:
    topics = ", ".join(sorted({change.queue.topic for change in changes}))
    moved = sum(1 for change in changes if change.before != change.after)
    values = {"moved": moved, "number": len(changes), "topics": topics}
    text = Text("{moved} of {number} queues of {topics} have a new offset.", **values)
    return Result(text, group, tuple(changes))


PREPARED_BY: Final[Mapping[str, Callable[[Changes, Form], Awaitable[Change]]]] = {
    "/send": Changes._send,
    "/reset": Changes._reset,
    "/resend": Changes._resend,
    "/undo": Changes._undo,
    "/stop": Changes._stop,
    "/consume": Changes._consume,
    "/delete": Changes._delete,
    "/topic-settings": Changes._topic_settings,
    "/group-settings": lambda changes, form: group_change(changes._admin, form),
}
