"""`MessageReads`: reads the messages that pages show: the newest, the matches of a search, or one message in full.

Bodies are decompressed one at a time in a thread, and lists keep only the beginning of each, which saves memory. A
record that cannot be decoded is shown without its body. If a broker fails, only its own messages are missing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Final

import trio

from pyrmq_core import Admin, MessageExt, MessageQueue, OffsetRange, PullConsumer, PullStatus, RocketMQError
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.consumer.pull_consumer import raw_pull
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.client.unpacking import in_steps, in_thread
from pyrmq_core.network.log_lines import one_line
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, iterate_readable
from pyrmq_core.tools.search.conditions import QUICK_BYTES, Condition, NoJson, condition_of, json_of
from pyrmq_core.tools.search.ranges import queues_named, ranges_that_answer
from pyrmq_core.tools.search.search import Search, SearchForm
from pyrmq_core.tools.search.where import Columns, Row
from pyrmq_core.tools.web.body_text import PART_BYTES, SUMMARY_BYTES, BodyText, body_text, summary
from pyrmq_core.tools.web.hit_files import HitFile
from pyrmq_core.tools.web.look_up_queue import LookUpQueue, WaitingLookUp
from pyrmq_core.tools.web.masks import NO_MASKS, MaskedCondition, Masks

# The most messages in a list. About twice as many are read, divided among the queues, and more for a short list.
SHOWN_MESSAGES: Final = 64
# Of more messages with the same store time than this, the others are not shown.
MOST_TIED: Final = 16 * SHOWN_MESSAGES
QUEUES_READ_AT_ONCE: Final = 8
MAX_QUEUES_READ: Final = 256
# A search ends after this many bytes, stored or unpacked, or seconds. By default it covers the last hour.
SEARCHED_BYTES: Final = 256 * 1024 * 1024
SEARCH_SECONDS: Final = 10.0
SEARCHED_TIME: Final = timedelta(hours=1)
# A broker that does not answer a search's first queries within this time is left out.
SILENT_SECONDS: Final = 3.0
# The longest body that the page unpacks. Several viewers together stay within some hundred MiB.
PAGE_BODY_BYTES: Final = 16 * 1024 * 1024
# The most long JSON bodies that are formatted at a time, in a thread.
LAYOUTS_AT_ONCE: Final = 1
# The bytes of a body's beginning that are masked for lists, which show a summary of it.
MASKED_BYTES: Final = 4 * SUMMARY_BYTES
CELL_CHARACTERS: Final = 80

RULES: Final = BodyRules(max_body_bytes=PAGE_BODY_BYTES)
MessageKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Messages by store time, the newest first, and the error of each unreadable queue.

    The bodies are cut to their beginnings, and `faults` has the errors of messages that cannot be decoded. Messages
    stored before `older` are left. `searched` describes what a search has read. A search that ended early continues
    with the messages stored before `go_on`, and leaves out their first `skip` matches, which were shown already.
    """

    messages: tuple[MessageExt, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    older: datetime | None = None
    searched: str = ""
    faults: Mapping[MessageKey, str] = field(default_factory=dict)
    is_whole: bool = True
    since: datetime | None = None
    go_on: datetime | None = None
    skip: int = 0

    def rows(self, columns: bool = False) -> list[tuple[MessageExt, str, list[str]]]:
        """Returns for each message its error or the summary of its body, or with `columns` its values for them."""
        rows: list[tuple[MessageExt, str, list[str]]] = []
        for message in self.messages:
            fault = self.faults.get(_key_of(message), "")
            cells = json.loads(message.body) if columns and not fault else []
            rows.append((message, fault or ("" if columns else summary(message.body)), cells))
        return rows


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message with one part of its body, formatted for display.

    `fault` is empty, or says why the body could not be decoded and is shown as it is stored.
    """

    message: MessageExt
    body: BodyText
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search of a topic. Without a condition or filter it is false as a bool, and requests the newest messages.

    `since` and `before` limit the time of storing. `contains`, `where` and `regex` are conditions on the message,
    `tags` and `sql` filters at the broker. Empty texts and None set no condition. `queue` has the names of queues,
    separated by blanks. `columns` are values that lists show in place of bodies (`Columns.parse`). The first `skip`
    matches are left out.
    """

    topic: str
    since: datetime | None
    before: datetime | None
    contains: str = ""
    where: str = ""
    regex: str = ""
    tags: str = ""
    sql: str = ""
    queue: str = ""
    columns: str = ""
    skip: int = 0

    def __bool__(self) -> bool:
        return bool(self.contains or self.where or self.regex or self.tags or self.sql)

    def condition(self) -> Condition | None:
        """Returns the condition that `contains`, `where` or `regex` sets, or None if they are empty.

        Raises `InvalidArgument` if several are set, or if one of them, `tags` or `sql` is invalid.
        """
        filter_of(self.tags or "*", self.sql or None)
        if not (self.contains or self.where or self.regex):
            return None
        return condition_of(self.contains or None, self.where or None, self.regex or None)


class MessageReads:
    """The reader of messages for the pages of the web server. It hides the values that `masks` names."""

    def __init__(self, admin: Admin, consumer: PullConsumer, masks: Masks = NO_MASKS) -> None:
        self.masks = masks
        self.admin = admin
        self.consumer = consumer
        self._layouts = LookUpQueue(LAYOUTS_AT_ONCE)

    async def search(self, wanted: Wanted, condition: Condition | None) -> FoundMessages:
        """Returns the newest matches, by default of the last hour, and where the search ended.

        If `condition` is None, all messages that pass the filters of `wanted` match.
        """
        most = SHOWN_MESSAGES + wanted.skip + 1
        search, since = await self._begin(wanted, condition, self.shortening(wanted), most)
        matches: list[MessageExt] = []

        async def take(matching: list[MessageExt]) -> bool:
            matches.extend(matching)
            return len(matches) >= most

        is_whole = await _run(search, take)
        return _found(wanted, search, matches[wanted.skip :], since, is_whole=is_whole)

    async def hits(self, wanted: Wanted, condition: Condition | None, form: str) -> bytes:
        """Returns all matches of a search as a file, which also says what was not read. `form` is jsonl or csv.

        If `condition` is None, all messages that pass the filters of `wanted` match.
        """
        search, since = await self._begin(wanted, condition, self.masks.of)
        file = HitFile(form)

        async def take(matching: list[MessageExt]) -> bool:
            with trio.CancelScope(shield=True):  # a match that was received is not lost
                await in_thread(file.add, matching)
            return bool(file.rest)

        is_whole = await _run(search, take)
        result = _found(wanted, search, [], since, is_whole=is_whole)
        texts = [] if result.is_whole and not (result.failures or search.account.long_json) else [result.searched]
        texts += [f"all is read from {result.go_on.isoformat()} on"] if result.go_on and not file.rest else []
        return file.end("; ".join(texts + [f"{name}: {error}" for name, error in result.failures.items()]))

    async def _begin(
        self,
        wanted: Wanted,
        condition: Condition | None,
        keep: Callable[[MessageExt], MessageExt],
        most: int | None = None,
    ) -> tuple[Search, datetime]:
        """Returns the search to run, and the store time from which it reads.

        `keep` converts each match. `most` limits the matches of a slice of time, and None sets no limit.
        """
        since = datetime.now(UTC) - SEARCHED_TIME if wanted.since is None else wanted.since
        queues = queues_named(await self.consumer.message_queues(wanted.topic), wanted.queue.split())
        ranges, failures = await ranges_that_answer(
            self.consumer, queues, since, wanted.before, sql=wanted.sql or None, within_seconds=SILENT_SECONDS
        )
        form = SearchForm(
            wanted.tags or "*",
            wanted.sql or None,
            SEARCHED_BYTES,
            SILENT_SECONDS,
            max_body_bytes=PAGE_BODY_BYTES,
            most=most,
            keep=keep,
        )
        masked = condition and MaskedCondition(self.masks, condition) if self.masks.any else condition
        search = Search(self.consumer, ranges, masked, form, begin=wanted.before)
        search.account.failures.update(failures)
        return search, since

    async def newest(self, wanted: Wanted) -> FoundMessages:
        """Returns the newest messages of at most 256 queues, from `wanted.since` to before `wanted.before`."""
        since, before = wanted.since, wanted.before
        stats = await self.admin.topics.stats(wanted.topic)
        named = queues_named(stats.queues, wanted.queue.split())
        held = {queue: stats.queues[queue] for queue in named if stats.queues[queue].messages > 0}
        failures = {name: str(error) for name, error in stats.failures.items()}
        queues = sorted(held)[:MAX_QUEUES_READ]
        if len(queues) < len(held):
            values = {"read": len(queues), "number": len(held)}
            text = Text("only {read} of {number} queues are read; look for a key or an id instead", **values)
            failures[wanted.topic] = text
        lists: dict[MessageQueue, list[MessageExt]] = {}
        faults: dict[MessageKey, str] = {}
        cuts: dict[MessageQueue, datetime] = {}
        room, most = trio.CapacityLimiter(QUEUES_READ_AT_ONCE), SHOWN_MESSAGES
        each = dict.fromkeys(queues, 1 + max(1, min(32, 2 * SHOWN_MESSAGES // max(1, len(queues)))))

        async def read(queue: MessageQueue) -> None:
            low, end = held[queue].min_offset, held[queue].max_offset
            cuts.pop(queue, None)
            async with room:
                try:
                    end = end if before is None else min(end, await self.consumer.offset_at(queue, before))
                    low = low if since is None else max(low, await self.consumer.offset_at(queue, since))
                    start = max(low, end - each[queue])
                    lists[queue] = (await self.read_range(queue, start, end, faults, wanted))[0]
                    cuts.update((queue, message.store_timestamp) for message in lists[queue][: start > low])
                except RocketMQError as error:
                    failures[str(queue)] = str(error)

        while True:
            async with trio.open_nursery() as nursery:
                for queue in queues:
                    nursery.start_soon(read, queue)
            newest_first(messages := list(chain(*lists.values())), failures, faults)
            # A cut list may lack messages of its oldest millisecond, so only later messages are shown.
            ends = [*cuts.values(), *(message.store_timestamp for message in messages[most : most + 1])]
            older = max(ends) + timedelta(milliseconds=1) if ends else None
            shown = tuple(message for message in messages if older is None or message.store_timestamp >= older)
            if older is None or len(shown) >= SHOWN_MESSAGES // 4:
                return FoundMessages(shown, failures, older, faults=faults)
            if sum(message.store_timestamp == max(ends) for message in messages) >= MOST_TIED:
                failures[wanted.topic] = Text("not all messages of one millisecond are shown; use pyrmq tail")
                shown = tuple(message for message in messages if message.store_timestamp >= max(ends))
                return FoundMessages(shown, failures, max(ends), faults=faults)
            queues, most = [queue for queue, cut in cuts.items() if cut == max(ends)], 4 * most
            each.update({queue: 4 * each[queue] for queue in queues})

    async def read_range(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        faults: dict[MessageKey, str],
        wanted: Wanted,
        matches: Callable[[MessageExt], bool] = lambda message: True,
        is_over: Callable[[], bool] = lambda: False,
    ) -> tuple[list[MessageExt], int]:
        """Returns the matches in a short offset range, with shortened bodies, and the offset before which all is read.

        The broker applies the filters of `wanted`. The errors of unreadable messages are added to `faults`. Reading
        stops early when `is_over` returns True, but not before the first message.
        """
        messages: list[MessageExt] = []
        tags, sql, shortened = wanted.tags or "*", wanted.sql or None, self.shortening(wanted)
        begun, over_at = False, -1

        def keep(item: Readable) -> MessageExt | None:
            nonlocal begun, over_at
            if over_at < 0 and begun and is_over():
                over_at = item.offset if isinstance(item, UnreadableRecord) else item.queue_offset
            if over_at >= 0:
                return None
            begun = True
            if not isinstance(item, UnreadableRecord):
                return shortened(item) if matches(item) else None
            if item.message is None:
                faults[queue.broker_name, queue.queue_id, item.offset] = str(item.error)
                return None
            values = {"size": len(item.message.body), "error": str(item.error)}
            faults[_key_of(item.message)] = Text("cannot be read, {size:,} bytes as stored: {error}", **values)
            return shortened(item.message)

        while start < end:
            pull = await raw_pull(self.consumer, queue, start, max_messages=end - start, tags=tags, sql=sql)
            own = OffsetRange(start, min(end, max(start, pull.next_offset)))
            async with aclosing(in_steps(iterate_readable(pull, own, RULES), keep)) as lists:
                async for part in lists:
                    messages += part
                    if over_at >= 0:
                        return messages, over_at
            if pull.status is PullStatus.NO_NEW_MSG or pull.next_offset <= start:
                break
            start = min(end, pull.next_offset)
        return messages, start

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Returns the message at an offset of a queue, or None. Raises the error of an unreadable message."""
        item = await self._item_at(queue, offset)
        if isinstance(item, UnreadableRecord):
            raise item.error
        return item

    async def shown(self, queue: MessageQueue, offset: int, form: str, part: int, address: str) -> ShownMessage | None:
        item = await self._item_at(queue, offset)
        fault = ""
        if isinstance(item, UnreadableRecord):
            if item.message is None:
                raise item.error
            fault, item = str(item.error), item.message
        if item is None:
            return None
        item = await in_thread(partial(self.masks.of, item, is_readable=not fault))
        return ShownMessage(shortened(item, self.masks), await self.body_text(item.body, form, part, address), fault)

    async def body_text(self, body: bytes, form: str, part: int, address: str) -> BodyText:
        """Returns one part of a body, formatted for display in the format `form`.

        Long JSON bodies are formatted one after another, shared fairly among the viewers' addresses. Raises
        `TooManyLookUps` if the wait is too long.
        """
        if form != "json" or len(body) <= PART_BYTES:
            return await in_thread(body_text, body, form, part)
        async with self._layouts.admitted(WaitingLookUp(), address):
            return await trio.to_thread.run_sync(body_text, body, form, part)

    def shortening(self, wanted: Wanted) -> Callable[[MessageExt], MessageExt]:
        """Returns a function that masks a message, and reduces its body to the beginning or to the chosen columns."""
        if wanted.columns:
            return partial(in_columns, masks=self.masks, columns=Columns.parse(wanted.columns))
        return partial(shortened, masks=self.masks)

    async def _item_at(self, queue: MessageQueue, offset: int) -> Readable | None:
        pull = await raw_pull(self.consumer, queue, offset, max_messages=1)
        return await in_thread(_first, pull, offset)


def _first(pull: RawPull, offset: int) -> Readable | None:
    return next(iterate_readable(pull, OffsetRange(offset, offset + 1), RULES, offsets=(offset,)), None)


async def _run(search: Search, take: Callable[[list[MessageExt]], Awaitable[bool]]) -> bool:
    """Passes a search's matches to `take` in lists, for `SEARCH_SECONDS` at most, until it returns True.

    Returns whether all messages of the search were read.
    """
    is_whole = is_full = False
    with trio.move_on_after(SEARCH_SECONDS):
        async with search.matches() as lists:
            async for matching in lists:
                if is_full := await take(matching):
                    break
            else:
                is_whole = not search.account.is_bounded
    if not (is_whole or is_full):
        await take(search.held())
    return is_whole


def _found(
    wanted: Wanted, search: Search, matches: list[MessageExt], since: datetime, *, is_whole: bool
) -> FoundMessages:
    account = search.account
    texts = [search.rest_text()]
    texts += [Text("{number:,} bodies are no JSON", number=account.no_json)] * bool(account.no_json)
    texts += [Text("{number:,} bodies are too long to be parsed", number=account.long_json)] * bool(account.long_json)
    texts += [Text("records that cannot be read: {number:,}", number=account.unreadable)] * bool(account.unreadable)
    failures = {name: str(error) for name, error in account.failures.items()}
    failures |= {Text("record {number}", number=at): text for at, text in enumerate(account.unreadable_texts, 1)}
    messages = tuple(matches[:SHOWN_MESSAGES])
    go_on, skip = (None, 0) if is_whole else (account.bound, 0)
    if len(matches) > SHOWN_MESSAGES:
        last_ms = messages[-1].store_timestamp_ms
        go_on = messages[-1].store_timestamp + timedelta(milliseconds=1)
        skip = sum(message.store_timestamp_ms == last_ms for message in messages)
        if skip == len(messages) and go_on == wanted.before:
            skip += wanted.skip
    return FoundMessages(
        messages,
        failures,
        searched=joined(texts),
        is_whole=is_whole and not account.failures,
        since=since,
        go_on=go_on,
        skip=skip,
    )


def newest_first(messages: list[MessageExt], failures: dict[str, str], faults: Mapping[MessageKey, str]) -> None:
    """Sorts `messages` in place by the time of storing, the newest first, and adds errors to `failures`.

    `faults` has errors by broker name, queue id and offset. Those of records that are not in `messages` are added.
    """
    keys = set(map(_key_of, messages))
    failures |= {f"{key[0]}/{key[1]}@{key[2]}": text for key, text in faults.items() if key not in keys}
    messages.sort(key=lambda message: (message.store_timestamp_ms, message.queue_offset), reverse=True)


def shortened(message: MessageExt, masks: Masks) -> MessageExt:
    """Returns the message with the beginning of its masked body."""
    # The body is cut before masking, to save memory, and after it, since masking may change its length.
    masked = masks.of(replace(message, body=message.body[:MASKED_BYTES]))
    return replace(masked, body=masked.body[:SUMMARY_BYTES])


def in_columns(message: MessageExt, masks: Masks, columns: Columns) -> MessageExt:
    """Returns the message with the values of the chosen columns, masked and as a JSON list, in place of its body."""
    is_long = columns.reads_json and len(message.body) > QUICK_BYTES
    masked = masks.of(replace(message, body=b"") if is_long else message)
    document = None
    if columns.reads_json and not is_long:
        with suppress(NoJson):
            document = json_of(masked.body)
    row = Row(masked, document)
    texts = [
        "…" if is_long and name.startswith("json") else _cell(value(row)) for name, value in columns.values.items()
    ]
    return replace(masked, body=json.dumps(texts).encode())


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
        except RecursionError:  # `json.dumps` allows less nesting than parsing
            return "…"
    text = one_line(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def _key_of(message: MessageExt) -> MessageKey:
    return message.broker_name, message.queue_id, message.queue_offset
