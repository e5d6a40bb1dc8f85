"""Places of requests: one address may have all, until another one needs some."""

from __future__ import annotations

import pytest

from pyrmq_core.web import guards
from pyrmq_core.web.guards import FairPlaces, Place


@pytest.fixture(autouse=True)
def four_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MAX_REQUESTS", 4)


def take(places: FairPlaces, host: str) -> Place:
    place = places.take(host)
    assert place is not None
    return place


async def test_one_address_may_have_all() -> None:
    places = FairPlaces()
    taken = [take(places, "proxy") for _ in range(4)]
    assert places.take("proxy") is None
    places.leave(taken[2])
    places.leave(taken[2])
    assert places.take("proxy") is not None
    assert places.take("proxy") is None
    assert not any(place.scope.cancel_called for place in taken)


async def test_addresses_share_alike() -> None:
    places = FairPlaces()
    greedy = [take(places, "greedy") for _ in range(4)]
    reader = [take(places, "reader") for _ in range(2)]
    assert [place.scope.cancel_called for place in greedy] == [True, True, False, False]
    assert places.take("reader") is None
    assert places.take("greedy") is None
    take(places, "third")
    assert [place.scope.cancel_called for place in (*greedy, *reader)] == [True, True, True, False, False, False]
