"""`OffsetsByHand`: the offset store of a consumer that commits only what the user commits."""

from __future__ import annotations

from collections.abc import Collection

from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore
from pyrmq_core.model import MessageQueue


class OffsetsByHand:
    """Another store, which ignores how far queues are consumed."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    async def load(self) -> None:
        await self._store.load()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Does nothing."""

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Does nothing."""

    def known(self, queue: MessageQueue) -> int | None:
        return self._store.known(queue)

    async def stored(self, queue: MessageQueue) -> int | None:
        return await self._store.stored(queue)

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Does nothing: a commit by hand stores at once."""

    def forget(self, queue: MessageQueue) -> None:
        self._store.forget(queue)
