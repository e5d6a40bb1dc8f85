"""The asyncio `SendWindow`: payloads in bulk, without waiting for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from pyrmq_core.aio.face import opened
from pyrmq_core.aio.loop_returns import close_held, on_library_loop
from pyrmq_core.client.producer.bulk.send_window import RefusedMessage, WriteSummary
from pyrmq_core.client.producer.bulk.send_window import SendWindow as TrioSendWindow
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.protocol.messages.payload import Payload


class SendWindow:
    """The asyncio form of `pyrmq_core.SendWindow`: one hop to the library's loop a payload, without waiting."""

    def __init__(self, manager: Callable[[], Awaitable[AbstractAsyncContextManager[TrioSendWindow]]]) -> None:
        self._manager = manager
        self._held: HeldContext[TrioSendWindow] | None = None

    @property
    def summary(self) -> WriteSummary:
        """The acknowledged messages so far."""
        return self._window().summary

    async def put(self, payload: Payload, to: Target) -> None:
        """Waits for room only; raises the first failure of any earlier payload. If cancelled, it has sent nothing."""
        window = self._window()
        while not window.enter_nowait(payload):
            await on_library_loop(window.wait_for_room, payload)
        if window.hand_over(payload, to):
            portal().soon(window.start_more)

    async def drain(self) -> WriteSummary:
        """Waits until every payload is acknowledged; raises the first failure once all other requests have ended."""
        return await on_library_loop(self._window().drain)

    def take_refused(self) -> list[RefusedMessage]:
        """Returns the messages refused since the last call (with `keep_refused`); the others beside them are stored."""
        return self._window().take_refused()

    async def __aenter__(self) -> Self:
        self._held = await opened(await self._manager())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Abandons the requests under way."""
        if self._held is not None:
            self._held.abandon()
            await close_held(self._held)

    def _window(self) -> TrioSendWindow:
        if self._held is None:
            raise InvalidState("a window is used in its block: async with producer.open_window() as window")
        return self._held.value
