"""Many queries of one kind at once, bounded, for callers that need every answer."""

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
    """Returns the answer for each key, queried together. The first failure ends the rest and is raised as it is.

    With `limit` they share one bound with other calls: each query holds a token of the limiter.
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
