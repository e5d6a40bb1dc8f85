"""Many queries that run at once, within a limit, for callers that need every answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import trio

from pyrmq_core.network import open_owned_nursery

QUERIES_AT_ONCE: Final = 256

K = TypeVar("K")
V = TypeVar("V")


async def query_many(
    keys: Iterable[K], ask: Callable[[K], Awaitable[V]], limit: trio.CapacityLimiter | None = None
) -> dict[K, V]:
    """Calls `ask` for all keys at once. Returns the answers by key, or raises the first failure.

    Several calls may share `limit`. Without it, `QUERIES_AT_ONCE` queries run at once.
    """
    limit = limit or trio.CapacityLimiter(QUERIES_AT_ONCE)
    answers: dict[K, V] = {}
    failures: list[Exception] = []

    async def query(key: K) -> None:
        async with limit:
            try:
                answers[key] = await ask(key)
            except Exception as error:
                failures.append(error)
                ended.set()
            if len(answers) == len(wanted):
                ended.set()

    wanted = list(dict.fromkeys(keys))
    ended = trio.Event()
    async with open_owned_nursery() as nursery:
        for key in wanted:
            nursery.start_soon(query, key)
        if wanted:
            await ended.wait()
    if failures:
        raise failures[0]
    return {key: answers[key] for key in wanted}
