"""Nurseries that end with their block: their tasks are cancelled, and an exception of the block is raised without an
exception group around it.

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
    """Opens a nursery whose tasks are cancelled when the block ends, normally or by an exception.

    Leaving the block waits until all of them have ended.
    """
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
    """Opens a nursery whose tasks run until the block has ended, even if the block itself is cancelled.

    So a cancelled block can still use its connections, for a bounded time, to store offsets and to unregister.
    """
    async with open_owned_nursery() as outer:
        with trio.CancelScope(shield=True):  # takes a moment, and must not add a point at which the caller is cancelled
            nursery: trio.Nursery = await outer.start(_hold)
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()


async def _hold(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Keeps a nursery open in a task of its own, so that a shield against cancellation covers the nursery's tasks but
    not the caller's block.
    """
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


def failure_in(failure: BaseException) -> BaseException:
    """Returns the one exception to report for a failure that may be an exception group.

    That is a `KeyboardInterrupt` in the group if there is any. Otherwise it is the first exception, if all are expected
    errors (`RocketMQError` or `OSError`): tasks that read from one broker fail together when it stops, and one error is
    enough. A group that also contains an unexpected error is returned unchanged, so that nothing is hidden.
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
