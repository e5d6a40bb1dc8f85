"""The rules by which a test answers, drops or delays chosen requests of an embedded cluster, or cuts connections."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyrmq_core.network import Handler, Peer, ask
from pyrmq_core.protocol.framing.command import Command


class Pass(enum.Enum):
    """The value that a control function returns to let the server answer as usual."""

    PASS = "pass"


PASS: Final = Pass.PASS
ControlFunction: TypeAlias = Callable[[Command, Peer], Awaitable[Command | Pass | None]]


@dataclass(eq=False, slots=True)
class Control:
    """A rule of `EmbeddedCluster.control`: `function` handles the requests with `code` at `server`, or at all servers.

    The rule ends after `times` requests, if that is not None. `seen` has the requests that it handled, oldest first.
    """

    code: int
    server: str | None
    function: ControlFunction
    times: int | None
    seen: list[Command] = field(default_factory=list)
    removed: bool = False

    def remove(self) -> None:
        """Ends the rule, so that requests reach the server again."""
        self.removed = True

    def takes(self, server: str, request: Command) -> bool:
        """Returns True if the rule applies to a request at a server."""
        spent = self.times is not None and len(self.seen) >= self.times
        return not (self.removed or spent) and request.code == self.code and self.server in (None, server)


class Controls:
    """All rules (`Control`) of an embedded cluster. The first one that applies to a request handles it."""

    def __init__(self) -> None:
        self._rules: list[Control] = []

    def add(self, rule: Control) -> None:
        self._rules.append(rule)

    def wrapping(self, server: str) -> Callable[[Handler], Handler]:
        """Returns a function that wraps the request handler of `server`, so that rules are applied first."""

        def wrap(handler: Handler) -> Handler:
            def controlled(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
                for rule in self._rules:
                    if rule.takes(server, request):
                        rule.seen.append(request)
                        return _by_rule(rule, handler, request, peer)
                return handler(request, peer)

            return controlled

        return wrap


async def _by_rule(rule: Control, handler: Handler, request: Command, peer: Peer) -> Command | None:
    answer = await rule.function(request, peer)
    return await ask(handler, request, peer) if answer is PASS else answer
