"""Nurseries whose tasks are cancelled when their block ends, and which do not wrap the block's exception.

Trio's nursery wraps it in an exception group, which `except SendFailed` around `async with Producer(...)` would not
catch. Where trio's nurseries are used, `failure_in` extracts the failure from the group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio

from pyrmq_core.errors import RocketMQError


@asynccontextmanager
async def open_owned_nursery() -> AsyncIterator[trio.Nursery]:
    """Opens a nursery whose tasks are cancelled when the block ends, normally or by an exception.

    Leaving the block waits until all tasks have ended.
    """
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    try:
        yield nursery
    except trio.Cancelled as cancelled:
        # If a crashed task of this nursery caused the cancellation, `__aexit__` raises that task's error.
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
        with trio.CancelScope(shield=True):  # opening a nursery must not be a point of cancellation
            nursery: trio.Nursery = await outer.start(_hold)
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()


async def _hold(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Keeps a nursery open in its own task. So only the nursery's tasks, and not the caller's block, are shielded."""
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


def failure_in(failure: BaseException) -> BaseException:
    """Returns the one exception to report for a failure that may be an exception group.

    That is a `KeyboardInterrupt` in the group if there is any. Otherwise it is the first exception, if all are expected
    errors (`RocketMQError` or `OSError`): for example, all tasks that read from a broker fail when it stops. A group of
    several exceptions with an unexpected one is returned unchanged, so that no error is hidden.
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
