"""`UnderWay`: sends that no task waits for, each told once how it ended.

A send that goes plainly is posted, and its answer told by the connection; a task goes on with it only where something
has to be waited for. A task for every send costs twice as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.receipts import Receipt
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.story import SendStory
from pyrmq_core.client.targets import Target
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.payload import Payload

# Told, on the loop, what a send came to.
Ended: TypeAlias = Callable[[Receipt | RocketMQError], None]


class UnderWay:
    """The sends of one window over a `Sender`."""

    def __init__(self, nursery: trio.Nursery, sender: Sender) -> None:
        self._nursery = nursery
        self._sender = sender
        self._forgets: dict[SendStory[Receipt], Callable[[], None] | None] = {}
        self._is_closed = False

    def start(self, payload: Payload, to: Target, timeout: float, ended: Ended) -> None:
        """Sends in the background; `ended` is told in any case but that of `abandon`, perhaps at once."""
        if self._is_closed:
            return
        story = self._sender.story(payload, to, timeout, CommunicationMode.SYNC)

        def told(end: Receipt | RocketMQError | None) -> None:
            if self._is_closed or story not in self._forgets:
                return
            if end is None:
                self._nursery.start_soon(self._go_on, story, ended)
            else:
                del self._forgets[story]
                ended(end)

        self._forgets[story] = None
        try:
            forget = self._sender.post(story, told)
        except RocketMQError as error:
            told(error)
            return
        if forget is None:
            self._nursery.start_soon(self._go_on, story, ended)
        elif story in self._forgets:
            self._forgets[story] = forget

    def abandon(self) -> None:
        """Ends the interest in all of them: what has not left does not leave; tasks end with their nursery."""
        self._is_closed = True
        for forget in self._forgets.values():
            if forget is not None:
                forget()

    async def _go_on(self, story: SendStory[Receipt], ended: Ended) -> None:
        end: Receipt | RocketMQError
        try:
            end = await self._sender.go_on(story)
        except RocketMQError as error:
            end = error
        del self._forgets[story]
        ended(end)
