"""Waiting for a condition that no event announces, with a deadline, and rates of what goes on meanwhile."""

from collections.abc import Callable

import trio

from pyrmq_core import Client, PullConsumer

POLL_SECONDS = 0.01
READABLE_SECONDS = 60.0


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Returns when the condition holds; raises `trio.TooSlowError` after so many seconds."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - the other side is a server or a thread that sets no event
            await trio.sleep(POLL_SECONDS)


async def until_readable(cluster: str | Client, topic: str, count: int) -> None:
    """Returns when so many messages of a topic can be read: Apache's brokers list a message after their answer.

    The cluster is a NameServer's address, or a client of it.
    """
    through = {"client": cluster} if isinstance(cluster, Client) else {"nameserver": cluster}
    async with PullConsumer("waiting", **through, timeout=20) as consumer:
        with trio.fail_after(READABLE_SECONDS):
            queues = await consumer.message_queues(topic)
            while sum(map(len, (await consumer.offset_bounds(queues)).values())) < count:  # noqa: ASYNC110
                await trio.sleep(POLL_SECONDS)


async def a_second(count: Callable[[], int]) -> float:
    """Returns by how much a count grows in a second; on a busy machine it looks for longer, and the rate is lower."""
    before, began = count(), trio.current_time()
    await trio.sleep(0.3)
    return (count() - before) / (trio.current_time() - began)
