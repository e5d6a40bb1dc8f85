"""Background sends that need no task: a callback receives the result or error of each send, once.

The first try is posted, and the connection's callback processes its answer. A task continues a send only if it has to
wait. The number of sends is not limited here, but in `InFlight` and `SendWindow`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from pyrmq_core.client.producer.send.receipt import Receipt, given_up, unexpected
from pyrmq_core.client.producer.send.send_options import CommunicationMode, SendState, Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import RocketMQError
from pyrmq_core.network import ON_LOOP, LoopAccess
from pyrmq_core.protocol.messages.payload import Payload

# A callback that receives the end of a send, on the loop.
Ended: TypeAlias = Callable[[Receipt | RocketMQError], None]


class BackgroundSends:
    def __init__(self, nursery: trio.Nursery, sender: Sender) -> None:
        self._nursery = nursery
        self._sender = sender
        self._ended: dict[SendState, Ended] = {}
        self._forgets: dict[SendState, Callable[[], None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._ended)

    def start(
        self,
        payload: Payload,
        to: Target,
        timeout: float,
        mode: CommunicationMode,
        ended: Ended,
        loop: LoopAccess = ON_LOOP,
    ) -> SendState | None:
        """Sends a payload in the background. Calls `ended` once with the receipt or error, perhaps before it returns.

        If `loop.writes_here`, the calling thread itself writes the request. If it cannot, nothing is sent and the
        result is None. It leaves the request to the loop while another send is open, since the loop joins requests.
        """
        if loop.writes_here and (self._ended or self._is_closed or not self._sender.writes_from_threads):
            return None
        state = self._sender.state_of(payload, to, timeout, mode, loop.now())
        if self._is_closed:
            ended(given_up(payload.topic))
        else:
            self._post(state, ended, loop)
        return state

    def longest_seconds(self, now: float) -> float:
        return max((state.started + state.timeout - now for state in list(self._ended)), default=0.0)

    def give_up(self, state: SendState) -> None:
        """Abandons the send. Withdraws a request that is not written yet, and ignores the answer to a written one."""
        if (forget := self._forgets.get(state)) is not None:
            forget()
        self._settle(state, given_up(state.payload.topic))

    def abandon(self) -> None:
        self._is_closed = True
        for state in list(self._ended):
            self.give_up(state)

    def fail(self, error: RocketMQError) -> None:
        """Fails all current and later sends, without use of connections or tasks, after the loop has crashed."""
        self._is_closed = True
        for state in list(self._ended):
            self._settle(state, error)

    def _post(self, state: SendState, ended: Ended, loop: LoopAccess) -> None:
        def first_ended(end: Receipt | RocketMQError | None) -> None:
            if end is not None:
                self._settle(state, end)
            elif state in self._ended:
                loop.soon(self._nursery.start_soon, self._go_on, state)

        self._ended[state] = ended
        try:
            forget = self._sender.post(state, first_ended, loop)
        except RocketMQError as error:
            self._settle(state, error)
            return
        except Exception as error:
            self._settle(state, unexpected(state.payload.topic, error))
            return
        if forget is None:
            loop.soon(self._nursery.start_soon, self._go_on, state)
        elif state in self._ended:
            self._forgets[state] = forget

    async def _go_on(self, state: SendState) -> None:
        if state not in self._ended:
            return
        with trio.CancelScope() as scope:
            self._forgets[state] = scope.cancel
            try:
                self._settle(state, await self._sender.go_on(state))
            except RocketMQError as error:
                self._settle(state, error)
            except Exception as error:
                self._settle(state, unexpected(state.payload.topic, error))
            finally:
                self._settle(state, given_up(state.payload.topic))

    def _settle(self, state: SendState, end: Receipt | RocketMQError) -> None:
        self._forgets.pop(state, None)
        if (ended := self._ended.pop(state, None)) is not None:
            ended(end)
