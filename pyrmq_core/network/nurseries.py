"""Nurseries whose tasks end with their block, and that raise the block's own errors without a group around them.

A plain nursery wraps its block's exception into an exception group, but users of `async with Producer(...)` want
`except SendFailed` to work. Where plain nurseries are used, `failure_in` extracts the failure from their groups.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio

from pyrmq_core.errors import RocketMQError


@asynccontextmanager
async def open_owned_nursery() -> AsyncIterator[trio.Nursery]:
    """Opens a nursery. However its block ends, all tasks are cancelled and have ended after it."""
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    try:
        yield nursery
    except trio.Cancelled as cancelled:
        # A task of this nursery may have crashed: then the manager raises that task's error instead.
        await manager.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
        raise
    except BaseException:
        nursery.cancel_scope.cancel()
        await manager.__aexit__(None, None, None)
        raise
    nursery.cancel_scope.cancel()
    await manager.__aexit__(None, None, None)


@asynccontextmanager
async def open_lasting_nursery() -> AsyncIterator[trio.Nursery]:
    """Opens a nursery whose tasks continue until the block has ended, even while the block is cancelled.

    A cancelled block can then still use its connections, for a bounded time, to store offsets and to unregister.
    """
    async with open_owned_nursery() as outer:
        with trio.CancelScope(shield=True):  # takes a moment, and must not add a point at which the caller is cancelled
            nursery: trio.Nursery = await outer.start(_hold)
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()


async def _hold(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Keeps a nursery open in a task of its own, whose shield covers its tasks but not the caller's block."""
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


def failure_in(failure: BaseException) -> BaseException:
    """Returns the failure in exception groups: an interrupt if there is any, else the first of expected errors.

    Tasks that read one broker fail together when the broker ends, each with an error of ours: the first is enough. A
    group that contains an unexpected error is returned unchanged, so that nothing is hidden.
    """
    leaves = list(_leaves(failure))
    for leaf in leaves:
        if isinstance(leaf, KeyboardInterrupt):
            return leaf
    named = all(isinstance(leaf, RocketMQError | OSError) for leaf in leaves)
    return leaves[0] if named or len(leaves) == 1 else failure


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _leaves(inner)
    else:
        yield failure
