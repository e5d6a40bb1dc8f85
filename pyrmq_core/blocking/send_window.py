"""The blocking `SendWindow`: payloads in bulk, without waiting for each."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pyrmq_core.client.producer.bulk.send_window import RefusedMessage, WriteSummary
from pyrmq_core.client.producer.bulk.send_window import SendWindow as AsyncSendWindow
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.errors import RocketMQError
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.protocol.messages.payload import Payload


class SendWindow:
    """The async `SendWindow` for threads: one hop to the loop a payload, never one a message, and without waiting."""

    def __init__(self, opened: HeldContext[AsyncSendWindow]) -> None:
        self._opened = opened

    @property
    def summary(self) -> WriteSummary:
        """The acknowledged messages so far."""
        return self._opened.value.summary

    def put(self, payload: Payload, to: Target) -> None:
        """Waits for room, then sends in the background. Raises the first failure of any earlier payload."""
        window, loop = self._opened.value, portal()
        loop.check_outside()
        try:
            while not window.enter_nowait(payload):
                loop.run(window.wait_for_room, payload)
            if window.hand_over(payload, to):
                loop.soon(window.start_more)
        except RocketMQError:
            raise
        except BaseException:  # interrupted
            loop.soon(window.interrupted, payload.topic)
            raise

    def drain(self) -> WriteSummary:
        """Waits until every payload is acknowledged; raises the first failure once all other requests have ended."""
        return portal().run(self._opened.value.drain)

    def take_refused(self) -> list[RefusedMessage]:
        """Returns the messages refused since the last call (with `keep_refused`); the others beside them are stored."""
        return self._opened.value.take_refused()

    def close(self) -> None:
        """Abandons the requests under way."""
        self._opened.abandon()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
