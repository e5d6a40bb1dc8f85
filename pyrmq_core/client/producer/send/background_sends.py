"""`BackgroundSends`: sends that no task waits for, each told once how it ended.

A send that goes plainly is posted, and its answer told by the connection; a task goes on with it only where something
has to be waited for. What is bounded, and by what, is for who stands on this: `InFlight` and `SendWindow`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import trio

from pyrmq_core.client.producer.communication_mode import CommunicationMode
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_errors import given_up, unexpected
from pyrmq_core.client.producer.send.send_state import SendState
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.producer.send.targets import Target
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.messages.payload import Payload

# Told, on the loop, what a send came to.
Ended: TypeAlias = Callable[[Receipt | RocketMQError], None]
Soon: TypeAlias = Callable[..., None]


class BackgroundSends:
    """The sends of one producer, or of one window, over a `Sender`."""

    def __init__(self, nursery: trio.Nursery, sender: Sender) -> None:
        self._nursery = nursery
        self._sender = sender
        self._ended: dict[SendState[Receipt], Ended] = {}
        self._forgets: dict[SendState[Receipt], Callable[[], None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._ended)

    def start(
        self, payload: Payload, to: Target, timeout: float, mode: CommunicationMode, ended: Ended
    ) -> SendState[Receipt]:
        """Sends in the background; `ended` is told once, perhaps before this returns."""
        story = self._sender.story(payload, to, timeout, mode)
        if self._is_closed:
            ended(given_up(payload.topic))
        else:
            self._post(story, ended, self._nursery.start_soon, aside=False)
        return story

    def start_aside(
        self, payload: Payload, to: Target, timeout: float, now: float, soon: Soon, ended: Ended
    ) -> SendState[Receipt] | None:
        """As `start`, by a thread that will wait, while the loop waits for I/O: it spares the hop to the loop's thread.

        None, and nothing is done, while others are under way: they are better written together. `now` is the loop's
        time; `soon` has a function called on the loop.
        """
        if self._ended or self._is_closed or not self._sender.posts_aside:
            return None
        story = self._sender.story(payload, to, timeout, CommunicationMode.SYNC, now)
        self._post(story, ended, partial(soon, self._nursery.start_soon), aside=True)
        return story

    def longest_seconds(self, now: float) -> float:
        """The time that the longest send has left; from any thread."""
        return max((story.started + story.timeout - now for story in list(self._ended)), default=0.0)

    def give_up(self, story: SendState[Receipt]) -> None:
        """Nobody waits for it any more: what has not left of it does not leave."""
        if (forget := self._forgets.get(story)) is not None:
            forget()
        self._settle(story, given_up(story.payload.topic))

    def abandon(self) -> None:
        """Gives up all of them, and all that come after."""
        self._is_closed = True
        for story in list(self._ended):
            self.give_up(story)

    def fail(self, error: RocketMQError) -> None:
        """Ends all of them, and all that come after, without touching connections or tasks: the loop is gone."""
        self._is_closed = True
        for story in list(self._ended):
            self._settle(story, error)

    def _post(self, story: SendState[Receipt], ended: Ended, start_soon: Soon, *, aside: bool) -> None:
        def told(end: Receipt | RocketMQError | None) -> None:
            if end is not None:
                self._settle(story, end)
            elif story in self._ended:
                start_soon(self._go_on, story)

        self._ended[story] = ended
        try:
            forget = self._sender.post(story, told, aside=aside)
        except RocketMQError as error:
            self._settle(story, error)
            return
        except Exception as error:
            self._settle(story, unexpected(story.payload.topic, error))
            return
        if forget is None:
            start_soon(self._go_on, story)
        elif story in self._ended:
            self._forgets[story] = forget

    async def _go_on(self, story: SendState[Receipt]) -> None:
        if story not in self._ended:
            return
        with trio.CancelScope() as scope:
            self._forgets[story] = scope.cancel
            try:
                self._settle(story, await self._sender.go_on(story))
            except RocketMQError as error:
                self._settle(story, error)
            except Exception as error:
                self._settle(story, unexpected(story.payload.topic, error))
            finally:
                self._settle(story, given_up(story.payload.topic))

    def _settle(self, story: SendState[Receipt], end: Receipt | RocketMQError) -> None:
        self._forgets.pop(story, None)
        if (ended := self._ended.pop(story, None)) is not None:
            ended(end)
