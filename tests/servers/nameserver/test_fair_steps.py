"""Long work in fair turns: the smallest is not held up, no work waits for ever, finished work gives its place up."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.nameserver.fair_steps import FairSteps
from tests.servers.nameserver.desk import Desk, peer, registration


def steps(name: str, count: int, trace: list[str]) -> Generator[None, None, str]:
    for _ in range(count):
        trace.append(name)
        yield
    return name


async def test_the_smallest_has_every_other_step_and_owners_share_the_rest() -> None:
    fair_steps, trace = FairSteps(), list[str]()
    async with trio.open_nursery() as nursery:

        async def run(name: str, owner: str, count: int, size: int) -> None:
            assert await fair_steps.run(steps(name, count, trace), owner=owner, size=size) == name

        nursery.start_soon(run, "giant1", "a", 100, 1000)
        nursery.start_soon(run, "giant2", "a", 100, 1000)
        nursery.start_soon(run, "other", "b", 100, 1000)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        nursery.start_soon(run, "small", "c", 10, 10)
    first_small = trace.index("small")
    last_small = len(trace) - trace[::-1].index("small")
    assert last_small - first_small <= 20  # every other step, at least
    both = trace[: trace.index("giant2")]
    assert abs(both.count("other") - both.count("giant1")) < 70  # the owner of two has no more than the owner of one
    assert len(trace) == 310


async def test_between_two_steps_others_run() -> None:
    fair_steps, trace = FairSteps(), list[str]()
    async with trio.open_nursery() as nursery:

        async def run(name: str) -> None:
            await fair_steps.run(steps(name, 50, trace), owner=name, size=1)

        for name in "abc":
            nursery.start_soon(run, name)
        passes = 0
        while len(trace) < 150:
            await trio.lowlevel.checkpoint()
            passes += 1
    assert passes >= 150  # one step a pass of the loop, however many wait


async def test_cancelled_work_passes_its_turn_on() -> None:
    fair_steps, trace = FairSteps(), list[str]()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(3)]

            async def run(scope: trio.CancelScope, name: str) -> None:
                with scope:
                    await fair_steps.run(steps(name, 1_000, trace), owner=name, size=1)

            for scope, name in zip(scopes, "abc", strict=True):
                nursery.start_soon(run, scope, name)
            for scope in scopes[:2]:
                await trio.lowlevel.checkpoint()
                scope.cancel()
    assert trace.count("c") == 1_000
    assert await fair_steps.run(steps("d", 2, trace), owner="d", size=1) == "d"


async def test_a_failure_is_the_callers_alone() -> None:
    fair_steps = FairSteps()

    def fails() -> Generator[None, None, None]:
        yield
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fair_steps.run(fails(), owner="a", size=1)
    assert await fair_steps.run(steps("b", 2, []), owner="b", size=1) == "b"


async def test_an_ordinary_broker_is_served_while_giants_are_worked_on() -> None:
    desk = Desk()
    done: list[str] = []

    async def register(name: str, command: Command) -> None:
        assert (await desk.ask(command, peer(f"127.0.0.1:{len(name)}"))).code == 0
        done.append(name)

    giants = [
        registration(f"giant{n}", f"h:{n}", topics=[f"{n}-{topic}" for topic in range(4_000)]).to_command()
        for n in range(6)
    ]
    honest = registration("honest", "h:9999", topics=[f"topic-{number}" for number in range(400)]).to_command()
    async with trio.open_nursery() as nursery:
        for number, giant in enumerate(giants):
            nursery.start_soon(register, f"giant{number}", giant)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        nursery.start_soon(register, "honest", honest)
    assert done[0] == "honest"
    assert len(done) == 7
    assert len(desk.server.tables.topic_queue_table) == 24_400


async def test_giants_that_wait_keep_no_ordinary_broker_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrmq_core.servers.nameserver.registration_queue.WAITING_BYTES", 400_000)
    monkeypatch.setattr("pyrmq_core.servers.nameserver.registration_queue.ORDINARY_BODY_BYTES", 100_000)
    desk = Desk()
    codes: dict[str, int] = {}

    async def register(name: str, topics: int) -> None:
        requested = registration(name, f"{name}:1", topics=[f"{name}-{topic}" for topic in range(topics)])
        codes[name] = (await desk.ask(requested.to_command(), peer())).code

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(register, f"giant{number}", 700)
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        nursery.start_soon(register, "honest", 300)
    assert sorted(codes.values()) == [0, 0, 2, 2]
    assert codes["honest"] == 0
