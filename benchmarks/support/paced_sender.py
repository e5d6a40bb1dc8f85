"""A process that sends small messages at a steady pace until it is killed; each body is its time of sending.

python -m benchmarks.support.paced_sender NAMESERVER TOPIC SECONDS_BETWEEN
"""

from __future__ import annotations

import sys
import time

import trio

from pyrmq_core import Message, Producer


async def main(nameserver: str, topic: str, pause: float) -> None:
    async with Producer("paced", nameserver=nameserver) as producer:
        while True:
            await producer.send(Message(topic, b"%d" % (time.time_ns() // 1000)))
            await trio.sleep(pause)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], float(sys.argv[3]))
