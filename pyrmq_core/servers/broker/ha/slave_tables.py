"""`SlaveTables`: fetches the master's topics, groups, offsets and delivery progress every 10 s.

Topics and groups replace the slave's if their version differs. Committed offsets are merged into the slave's. RocketMQ
5 fetches every minute and 4.9 every 10 s. Source: broker/slave/SlaveSynchronize.java (5.4.0).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import trio

from pyrmq_core.errors import BodyError, ConnectFailed, ConnectionClosed, RocketMQError, StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.broker.ha.master_checks import log_bounds
from pyrmq_core.servers.broker.ha.master_tables import (
    Page,
    delay_offsets,
    groups_page,
    offset_rows,
    timer_checkpoint,
    topics_page,
)
from pyrmq_core.servers.broker.ha.own_commits import Ask, OwnCommits
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint, keep_checkpoint

log = line_logger(__name__)

V = TypeVar("V")

PERIOD_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
ADOPT_SECONDS: Final = 1.0
# The rows of a page, as in RocketMQ's SlaveSynchronize.
PAGE_ROWS: Final = 2000
# The most topics, groups, or pairs of topic and group with offsets. A table with more is refused.
MOST_ROWS: Final = 500_000
MOST_PAGES: Final = 1000

ReadPage: TypeAlias = Callable[[Command], Page[V]]


@dataclass(frozen=True, slots=True)
class FetchedState:
    """A master's delivery progress, as a slave fetched it: next offsets by delay level, and the timers' checkpoint.

    `timers` is None if the master has no timers. All messages that the master had delivered lie before the offset
    `log_end` of its log. `known_to` is the end of the slave's log before the fetch: the progress includes all
    deliveries before it.
    """

    delay_offsets: dict[int, int]
    timers: TimerCheckpoint | None
    log_end: int
    known_to: int


class DeliveryState:
    """The master's progress in delivering delayed messages and timers, until this slave can adopt it.

    A slave that becomes the master continues from the adopted progress. If its log lacked messages that were delivered
    according to this progress, they would be lost. So fetched progress waits until the slave's log is synced up to its
    `log_end`.
    """

    def __init__(self, store: MessageStore, delays: DelayLevels) -> None:
        self._store = store
        self._delays = delays
        self._waiting: FetchedState | None = None
        self._kept: TimerCheckpoint | None = None
        self._turn = trio.Lock()

    async def fetched(self, state: FetchedState) -> None:
        """Stores fetched progress until it can be adopted, unless other progress already waits.

        If each fetch replaced the waiting progress, a slave that lags far would never adopt any.
        """
        if self._waiting is None or state.log_end < self._waiting.log_end:  # smaller if the master lost its log's end
            self._waiting = state
        await self.adopt()

    async def adopt(self) -> None:
        """Adopts the waiting progress once this slave's log is synced up to its `log_end`. May raise `StoreError`."""
        async with self._turn:
            state = self._waiting
            if state is None or self._store.flushed < state.log_end:
                return
            if state.timers not in (None, self._kept):
                await trio.to_thread.run_sync(keep_checkpoint, self._store.files, state.timers)
                self._kept = state.timers
            self._delays.replace(state.delay_offsets, state.known_to)
            self._waiting = None


class Fields(NamedTuple):
    """The names of the two request fields that select a page: its first row, and its number of rows."""

    first: str
    most: str


TOPIC_FIELDS: Final = Fields("topicSeq", "maxTopicNum")
GROUP_FIELDS: Final = Fields("groupSeq", "maxGroupNum")


class SlaveTables:
    """The fetches of the master's tables and progress by a slave. `run` repeats them until cancelled.

    `ask` sends a request to the master. `master_address` returns its address, or None while that is unknown. The event
    `tried` is set after the first attempt, `has_topics` when the topics were fetched for the first time.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: GroupOffsets,
        delays: DelayLevels,
        *,
        ask: Ask,
        master_address: Callable[[], str | None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._own = OwnCommits(offsets)
        self._delivery = DeliveryState(store, delays)
        self._ask = ask
        self._master_address = master_address
        self.failed: set[str] = set()  # the tables whose last fetch failed, which was logged
        self._turn = trio.Lock()
        self._wanted = trio.Event()
        self.tried = trio.Event()
        self.has_topics = trio.Event()

    def want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._adopt)
            while True:
                self._wanted = trio.Event()
                pause = PERIOD_SECONDS if await self.fetch() else RETRY_SECONDS
                with trio.move_on_after(pause):
                    await self._wanted.wait()

    async def fetch_topics(self) -> None:
        """Fetches only the master's topics, if the master is known. A failure is logged."""
        address = self._master_address()
        if address is not None:
            async with self._turn:
                await self._step("topics", self._fetch_topics, address)

    async def fetch(self) -> bool:
        """Fetches all tables once, and logs failures. Returns False if the master is unknown or cannot be reached."""
        address = self._master_address()
        if address is None:
            return False
        steps: dict[str, Callable[[str], Awaitable[None]]] = {
            "topics": self._fetch_topics,
            "groups": self._fetch_groups,
            "offsets": self._fetch_offsets,
            "deliveries": self._fetch_deliveries,
        }
        reached = True
        async with self._turn:
            for name, step in steps.items():
                reached = await self._step(name, step, address)
                if not reached:
                    break
        self.tried.set()
        return reached

    async def _step(self, name: str, step: Callable[[str], Awaitable[None]], address: str) -> bool:
        try:
            await step(address)
        except RocketMQError as error:
            self._note_failure(name, address, error)
            return not isinstance(error, ConnectFailed | ConnectionClosed)
        self._note_success(name, address)
        return True

    async def _fetch_topics(self, address: str) -> None:
        version = self._topics.data_version
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        page = await self._fetch_pages(address, code, TOPIC_FIELDS, topics_page, version)
        if page is not None:
            self._topics.replace(page.table, page.version)
            _note_left_out("topics", address, page)
        self.has_topics.set()

    async def _fetch_groups(self, address: str) -> None:
        version = self._groups.data_version
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        page = await self._fetch_pages(address, code, GROUP_FIELDS, groups_page, version)
        if page is not None:
            self._groups.replace(page.table, page.forbidden, page.version)
            _note_left_out("groups", address, page)

    async def _fetch_offsets(self, address: str) -> None:
        # First the master gets the offsets that were committed at this slave, and then the master's are merged.
        fetched = await trio.to_thread.run_sync(
            offset_rows, await self._asked(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        )
        await self._own.give_back(fetched.rows, self._ask, address)
        async for (topic, group), row in InTurns(fetched.rows.items()):
            if len(self._offsets) >= MOST_ROWS:
                raise BodyError(f"the offsets of more than {MOST_ROWS} groups and topics are not kept")
            self._offsets.merge(topic, group, self._own.others(topic, group, row))
        if fetched.version is not None:
            self._offsets.data_version = fetched.version

    async def _fetch_deliveries(self, address: str) -> None:
        known_to = self._store.end
        levels = delay_offsets(await self._asked(address, RequestCode.GET_ALL_DELAY_OFFSET))
        timers = timer_checkpoint(await self._ask(Command(RequestCode.GET_TIMER_CHECK_POINT)), address)
        bounds = log_bounds(await self._asked(address, RequestCode.GET_BROKER_RUNTIME_INFO))
        if bounds is None:
            raise BodyError("its runtime figures (28) do not say where its log ends")
        await self._delivery.fetched(FetchedState(levels, timers, bounds[1], known_to))

    async def _fetch_pages(
        self, address: str, code: RequestCode, fields: Fields, read: ReadPage[V], own_version: DataVersion
    ) -> Page[V] | None:
        """Fetches a table of the master page by page. Returns None if its version is this slave's `own_version`.

        If the table changes between two pages, the master sends its first page again. A master of 4.9 sends one page.
        """
        table: Page[V] | None = None
        for _ in range(MOST_PAGES):
            first, version = (0, "") if table is None else (table.rows, table.version.to_json().decode())
            ext = {fields.first: str(first), fields.most: str(PAGE_ROWS), "dataVersion": version}
            page = await trio.to_thread.run_sync(read, await self._asked(address, code, ext))
            if page.version == own_version:
                return None
            if table is not None and page.version == table.version:
                if not page.rows:
                    raise BodyError(f"it sends {table.rows} rows, and says that it has {page.total}")
                table.add(page)
            else:
                table = page
            if table.rows > MOST_ROWS:
                break
            if table.rows >= table.total:
                return table
        raise BodyError(f"it does not end after {MOST_ROWS} rows, or {MOST_PAGES} pages")

    async def _asked(self, address: str, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
        answer = await self._ask(Command(code, ext or {}))
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, code, address)
        return answer

    async def _adopt(self) -> None:
        while True:
            await trio.sleep(ADOPT_SECONDS)
            with contextlib.suppress(StoreError):  # the next fetch reports it
                await self._delivery.adopt()

    def _note_failure(self, name: str, address: str, error: RocketMQError) -> None:
        if name not in self.failed:
            self.failed.add(name)
            log.warning(
                "the %s of the master at %s are not taken, those that this slave has stay: %s; it tries again, and "
                "the master's log may say more",
                name,
                address,
                error,
            )

    def _note_success(self, name: str, address: str) -> None:
        if name in self.failed:
            self.failed.remove(name)
            log.info("the %s of the master at %s are taken again", name, address)


def _note_left_out(name: str, address: str, page: Page[V]) -> None:
    if page.left_out:
        log.error(
            "%d %s of the master at %s cannot be kept here, and are left out; one: %s",
            page.left_out,
            name,
            address,
            page.reason,
        )
