"""The world of a seed: the same history again, and an end to one that stands."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from pyrmq_core.network.connection.answers import refuse_unsupported
from tests.simulated.life import live
from tests.simulated.world import Spins, World, simulate

ROOT = Path(__file__).parent.parent.parent
# Of the first an ordered group, and a burst.
SEEDS = (5,)
DIGESTS = "from tests.simulated.test_world import digests; print(*digests())"


def digests() -> list[str]:
    """Returns a short form of the histories of `SEEDS`."""
    return [hashlib.sha256(repr(live(seed)).encode()).hexdigest() for seed in SEEDS]


def test_a_seed_gives_the_same_history_again() -> None:
    """In this process, and in another one whose sets of names have another order."""
    other = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "77"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    first = digests()
    assert first == digests()
    assert other.stdout.split() == first


def test_tasks_may_run_in_any_order() -> None:
    def order(seed: int) -> str:
        done: list[str] = []

        async def tasks(_: World) -> str:
            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(wait, name)
            return "".join(done)

        async def wait(name: str) -> None:
            await trio.sleep(1)
            done.append(name)

        return simulate(seed, tasks)

    assert {order(seed) for seed in range(50)} == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_a_connection_ends_in_place_of_what_is_lost() -> None:
    async def lose(world: World) -> list[str]:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(world.serve, refuse_unsupported, "127.0.0.1", 9))
            wire = await world.open_wire("127.0.0.1:9", tls=None, timeout=1)
            world.loss = 1
            wire.send_nowait([b"lost"])
            with pytest.raises(ConnectionResetError):
                wire.send_nowait([b"too late"])
            assert world.wires == []
            nursery.cancel_scope.cancel()
        return [address for _, address in world.lost]

    assert simulate(0, lose) == ["127.0.0.1:9"]


def test_a_task_that_never_waits_is_ended() -> None:
    async def spin(_: World) -> None:
        while True:
            pass

    with pytest.raises(Spins, match="without one turn of its loop"):
        simulate(0, spin)


def test_tasks_that_wake_each_other_for_ever_are_ended() -> None:
    async def spin(_: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(Spins, match="while no second passed"):
        simulate(0, spin)
