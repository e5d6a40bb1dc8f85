"""The example of an asyncio service, as its users run it: orders in, totals out, an end in order."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster, PullConsumer

SERVICE = Path(__file__).parent.parent.parent / "examples" / "asyncio_service.py"


def asked(port: int, *lines: str) -> list[str]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rw") as stream:
        answers = []
        for line in lines:
            stream.write(line + "\n")
            stream.flush()
            answers.append(stream.readline().strip())
        return answers


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_the_service(end: signal.Signals) -> None:
    with EmbeddedCluster(topics={"orders": 2}) as cluster:
        command = [sys.executable, "-W", "error", str(SERVICE), cluster.nameserver]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout is not None
                port = int(service.stdout.readline().split()[-1])
                first, second, wrong = asked(
                    port, '{"customer": "ann", "boxes": 2}', '{"customer": "ann", "boxes": 3}', "[1]"
                )
                assert (len(first), len(second), wrong) == (32, 32, "error: not an order")
                deadline = time.monotonic() + 60
                while json.loads(asked(port, "totals")[0]) != {"ann": 5}:
                    assert time.monotonic() < deadline, "the consumer does not read the orders"
                service.send_signal(end)
                _, errors = service.communicate(timeout=20)
                assert (service.returncode, errors) == (0, "")
            finally:
                service.kill()
        with PullConsumer("order-totals", nameserver=cluster.nameserver) as consumer:
            offsets = consumer.committed_offsets(consumer.message_queues("orders"))
            assert sum(offset or 0 for offset in offsets.values()) == 2
