"""`Turns`: a few steps in each pass of the loop, in the order of the tasks, and none lost to a cancelled task."""

import trio

from pyrmq_core.network.turns import AT_ONCE, Turns


async def test_other_tasks_run_between_two_turns() -> None:
    turns, events = Turns(), list[str]()

    async def step(name: str) -> None:
        await turns.take()
        events.append(name)

    async def quick() -> None:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            events.append(f"quick {number}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(quick)
        for number in range(50 * AT_ONCE):
            nursery.start_soon(step, f"{number}")
    quick_ones = [at for at, name in enumerate(events) if name.startswith("quick")]
    assert quick_ones[-1] < 10 * AT_ONCE
    assert turns.take_nowait()


async def test_turns_are_taken_in_the_order_of_the_waiting_tasks() -> None:
    turns, numbers = Turns(), list[int]()

    async def step(number: int, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await turns.take()
        numbers.append(number)

    assert [turns.take_nowait() for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    async with trio.open_nursery() as nursery:
        for number in range(20):
            await nursery.start(step, number)
    assert [number // AT_ONCE for number in numbers] == [number // AT_ONCE for number in range(20)]


async def test_a_cancelled_task_leaves_its_turn_to_the_next() -> None:
    turns, ended = Turns(), trio.Event()

    async def cancelled(scope: trio.CancelScope) -> None:
        with scope:
            await turns.take()

    async def last() -> None:
        await turns.take()
        ended.set()

    assert [turns.take_nowait() for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(cancelled, scope)
        nursery.start_soon(last)
        scope.cancel()
        with trio.fail_after(10):
            await ended.wait()
