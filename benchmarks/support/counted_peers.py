"""The other ends of the counted cases, as processes of their own: `python counted_peers.py MODE ...`."""

from __future__ import annotations

import socket
import sys

from benchmarks import network_bulk, network_calls
from benchmarks.nameserver_load import connect, receive_success
from benchmarks.support import sends
from benchmarks.support.user_rows import EQUAL, LARGE, SMALL
from pyrmq_core.blocking import Admin, Producer, PullConsumer
from pyrmq_core.protocol.framing.frame import encode_frame
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo

QUEUES = 4
SECONDS = 600.0
sends.TIMEOUT_SECONDS = SECONDS  # the broker under callgrind takes fifty times as long


def echo() -> None:
    """Answers requests as a broker does, and prints its port."""
    with listening() as listener:
        network_calls.plain_echo(listener)


def bulk(answer_bytes: str) -> None:
    """Receives large requests, or sends large answers, and prints its port."""
    with listening() as listener:
        while True:
            network_bulk.serve_plain(listener, int(answer_bytes))


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    return listener


def routes(nameserver: str, topic: str, count: str) -> None:
    """Looks up so many routes, one after another, over one connection."""
    question = encode_frame(GetRouteInfo(topic).to_command())
    with connect(nameserver) as connected:
        for _ in range(int(count)):
            connected.sendall(question)
            receive_success(connected)


def soon(nameserver: str, topic: str, count: str) -> None:
    sends.send_soon(nameserver, topic, 256, int(count))


def batch(nameserver: str, topic: str, count: str) -> None:
    sends.send_batch(nameserver, topic, int(count))


def read(nameserver: str, topic: str, count: str) -> None:
    """Reads the topic's first messages, a part of each queue."""
    with PullConsumer("counted", nameserver=nameserver, timeout=SECONDS) as consumer:
        for queue in consumer.message_queues(topic):
            end = min(consumer.max_offset(queue), int(count))
            with consumer.read_arrow(queue, 0, end) as batches:
                for _ in batches:
                    pass


def calls(port: str, _: str, count: str) -> None:
    network_calls.blocking(int(port), 256, int(count))


def fill(nameserver: str, rows: str) -> None:
    """Makes the topics that the cases read: plain ones by size of body, and a batch topic."""
    import pyarrow as pa

    with Admin(nameserver=nameserver) as admin, Producer("filling", nameserver=nameserver) as producer:
        for name, case, count in (
            ("plain100", SMALL, int(rows)),
            ("plain1024", LARGE, int(rows)),
            ("batched100", SMALL, int(rows)),
            ("equal100", EQUAL, int(rows)),
            ("pushed", SMALL, 4000),
            ("sends", SMALL, 0),
        ):
            admin.create_topic(name, queues=QUEUES, batch=name == "batched100")
            queues = producer.message_queues(name)
            for queue in queues:
                share = count // len(queues)
                if share:
                    table = pa.Table.from_batches([case.record_batch(share)])
                    producer.send_arrow(table, topic=name, queue=queue, timeout=60)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
