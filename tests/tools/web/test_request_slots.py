"""Places of requests: one address may have all, until another one needs some."""

from __future__ import annotations

import pytest

from pyrmq_core.tools.web import guards
from pyrmq_core.tools.web.guards import RequestSlot, RequestSlots


@pytest.fixture(autouse=True)
def four_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MAX_REQUESTS", 4)


def take(slots: RequestSlots, host: str) -> RequestSlot:
    slot = slots.take(host)
    assert slot is not None
    return slot


async def test_one_address_may_have_all() -> None:
    slots = RequestSlots()
    leases = [take(slots, "proxy") for _ in range(4)]
    assert slots.take("proxy") is None
    slots.leave(leases[2])
    slots.leave(leases[2])
    assert slots.take("proxy") is not None
    assert slots.take("proxy") is None
    assert not any(slot.scope.cancel_called for slot in leases)


async def test_addresses_share_alike() -> None:
    slots = RequestSlots()
    greedy = [take(slots, "greedy") for _ in range(4)]
    reader = [take(slots, "reader") for _ in range(2)]
    assert [slot.scope.cancel_called for slot in greedy] == [True, True, False, False]
    assert slots.take("reader") is None
    assert slots.take("greedy") is None
    take(slots, "third")
    assert [slot.scope.cancel_called for slot in (*greedy, *reader)] == [True, True, True, False, False, False]
