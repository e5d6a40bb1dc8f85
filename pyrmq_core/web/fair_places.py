"""`FairPlaces`: the places of requests under way, shared between the addresses that ask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import trio

MAX_REQUESTS: Final = 64


@dataclass(eq=False, slots=True)
class Place:
    """The place of one request; its scope is cancelled when the place goes to another address."""

    host: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class FairPlaces:
    """At most `MAX_REQUESTS` places, the oldest first.

    One address alone may hold all of them, as a proxy does. When they are full, an address with fewer takes the oldest
    of the address with the most.
    """

    def __init__(self) -> None:
        self._taken: dict[Place, None] = {}

    def take(self, host: str) -> Place | None:
        """Returns a place for a request of the address; None if there is none for it."""
        if len(self._taken) >= MAX_REQUESTS:
            counts = Counter(place.host for place in self._taken)
            greediest, most = counts.most_common(1)[0]
            if most <= counts[host] + 1:
                return None
            oldest = next(place for place in self._taken if place.host == greediest)
            self.leave(oldest)
            oldest.scope.cancel()
        place = Place(host)
        self._taken[place] = None
        return place

    def leave(self, place: Place) -> None:
        self._taken.pop(place, None)
