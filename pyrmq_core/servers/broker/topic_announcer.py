"""`TopicAnnouncer`: creates topics, and announces them to the NameServers."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.tables.topics import TopicTable


@dataclass(frozen=True, slots=True)
class TopicAnnouncer:
    topics: TopicTable
    registration: BrokerRegistration
    nursery: trio.Nursery
    # Lets the senders to new topics continue one by one, since many may have waited for the same announcement.
    sends_to_new_topics: trio.Lock = field(default_factory=trio.Lock)

    async def announce(self, *topics: TopicConfig, behind_file: bool = False) -> None:
        """Creates or changes topics, and waits until they are announced to the NameServers.

        The announcement continues if the caller is cancelled. The topics' file is written in the background, or with
        `behind_file` before the announcement. If that write fails, this raises `StoreError`, and the next registration
        announces the topics. It also raises `StoreError` if the broker stops meanwhile.
        """
        for topic in topics:
            self.topics.put(topic, clock.now_ms())
        announced = trio.Event()
        failures: list[StoreError] = []

        async def announce() -> None:
            try:
                if behind_file:
                    await self.topics.file.written()
                await self.registration.announce()
            except StoreError as error:
                failures.append(error)
            except trio.Cancelled:
                failures.append(StoreError("the broker stopped before it announced its topics"))
                raise
            finally:
                announced.set()

        self.nursery.start_soon(announce)
        await announced.wait()
        if failures:
            raise failures[0]

    async def ensure(self, topic: TopicConfig) -> None:
        """Creates a missing topic, and returns when the topics' file has it. Raises `StoreError` if writing fails."""
        if topic.topic not in self.topics:
            await self.announce(topic, behind_file=True)
        await self.topics.saved(topic.topic)
