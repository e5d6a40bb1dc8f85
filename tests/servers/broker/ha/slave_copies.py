"""The tables of a slave without its broker: they are fetched from a running master when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.servers.broker.ha.own_commits import Ask
from pyrmq_core.servers.broker.ha.slave_tables import SlaveTables
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from tests.servers.broker.serving import config

MASTER = "127.0.0.1:10911"


@dataclass
class Copy:
    """A slave's tables; `answers` replaces the master's answers by code."""

    settings: BrokerConfig
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    delays: DelayLevels
    tables: SlaveTables
    answers: dict[int, Callable[[Command], Awaitable[Command]]]
    asked: list[Command]
    master: str | None = MASTER

    @property
    def delay_offsets(self) -> object:
        return self.delays.members()["offsetTable"]

    def written_delays(self) -> dict[str, Any]:
        """Returns the members that delayOffset.json would have next."""
        text = self.delays.unsaved()
        assert text is not None
        return load_object(text(), "delayOffset.json")


@asynccontextmanager
async def copy_of(ask: Ask, directory: Path) -> AsyncIterator[Copy]:
    """Yields empty tables of a slave that asks its master by `ask`."""
    settings = config(directory)
    files = DiskFiles(settings.store_root)
    store = MessageStore(files, settings.store_settings)
    store.open(1)
    answers: dict[int, Callable[[Command], Awaitable[Command]]] = {}
    asked: list[Command] = []

    async def asking(request: Command) -> Command:
        asked.append(request)
        return await answers.get(request.code, ask)(request)

    tables = (
        TopicTable(files, settings),
        GroupTable(files, auto_create=False),
        GroupOffsets(files),
        DelayLevels(store, files, settings.delays_ms()),
    )
    slave_tables = SlaveTables(store, *tables, ask=asking, master_address=lambda: copy.master)
    copy = Copy(settings, store, *tables, slave_tables, answers, asked)
    try:
        yield copy
    finally:
        store.abandon()
