"""A small asyncio service: it takes orders by TCP, sends each as a message, and counts what its consumer group reads.

    python examples/asyncio_service.py 127.0.0.1:9876 [PORT]

Each line that a client writes is an order, as JSON: {"customer": "ann", "boxes": 2}. The answer is the message's id, or
an error. The line "totals" is answered with the boxes of each customer so far. SIGTERM or Ctrl-C end it in order:
orders under way are answered, offsets are stored, the group is left.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence

from pyrmq_core import ConsumeFromWhere, Message, MessageExt, RocketMQError
from pyrmq_core.aio import Client, Producer, PushConsumer

TOPIC = "orders"
ANSWER_SECONDS = 5.0


class OrderService:
    """Takes orders from connections, and the same orders as messages from RocketMQ."""

    def __init__(self, client: Client) -> None:
        self.producer = Producer("order-service", client=client)
        self.consumer = PushConsumer("order-totals", client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
        self.boxes: Counter[str] = Counter()

    async def run(self, port: int, stop: asyncio.Event) -> None:
        """Serves until `stop` is set."""
        async with self.producer, self.consumer:
            await self.consumer.subscribe(TOPIC)
            server = await asyncio.start_server(self.serve, "127.0.0.1", port)
            print("listening on", server.sockets[0].getsockname()[1], flush=True)
            async with server, asyncio.TaskGroup() as tasks:
                tasks.create_task(self.consumer.run(self.count))
                await stop.wait()
                server.close()
                await self.consumer.stop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the lines of one connection."""
        try:
            while line := await reader.readline():
                writer.write((await self.answer(line.strip()) + "\n").encode())
                await writer.drain()
        finally:
            writer.close()

    async def answer(self, line: bytes) -> str:
        """Returns the answer to one line."""
        if line == b"totals":
            return json.dumps(self.boxes)
        try:
            customer = json.loads(line)["customer"]
            async with asyncio.timeout(ANSWER_SECONDS):
                result = await self.producer.send(Message(TOPIC, line, keys=customer))
        except (ValueError, LookupError, TypeError):
            return "error: not an order"
        except TimeoutError:
            return "error: no answer in time, the order is perhaps stored"
        except RocketMQError as error:
            return f"error: {error}"
        return result.msg_id

    async def count(self, messages: Sequence[MessageExt]) -> None:
        """Counts the boxes of messages; runs as tasks of this loop, so that it needs no lock."""
        for message in messages:
            order = json.loads(message.body)
            self.boxes[order["customer"]] += order["boxes"]


async def main(nameserver: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(nameserver=nameserver) as client:
        await OrderService(client).run(port, stop)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
