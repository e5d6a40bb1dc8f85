"""A nursery whose tasks end with its block, and whose block's own errors come out as they are.

A plain nursery wraps what the block raises into an exception group; users of `async with Producer(...)` want `except
SendFailed` to work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_owned_nursery() -> AsyncIterator[trio.Nursery]:
    """On leaving, for whatever reason, all tasks are cancelled and waited for."""
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    try:
        yield nursery
    except trio.Cancelled as cancelled:
        # Perhaps a task of this nursery crashed: the manager knows, and turns this into that task's error.
        await manager.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
        raise
    except BaseException:
        nursery.cancel_scope.cancel()
        await manager.__aexit__(None, None, None)
        raise
    nursery.cancel_scope.cancel()
    await manager.__aexit__(None, None, None)
