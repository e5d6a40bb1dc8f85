"""A work queue: two workers of one group take jobs one by one, and a job that fails comes again.

    python examples/work_queue.py 127.0.0.1:9876

It needs a broker of RocketMQ 5.0 or later. A worker has as many jobs at once as `at_once` says. A job that takes longer
than its invisible time is extended while the handler works, and the jobs of a worker that was killed come to another.
"""

from __future__ import annotations

import sys
import threading

from pyrmq_core import ConsumeLater, Message, MessageExt
from pyrmq_core.blocking import Admin, Client, PopConsumer, Producer

TOPIC, GROUP, JOBS = "thumbnails", "thumbnailers", 10


def main(nameserver: str) -> None:
    with Client(nameserver=nameserver) as client:
        with Admin(client=client) as admin:
            admin.create_topic(TOPIC, queues=1)
        with Producer("shop", client=client) as producer:
            for number in range(JOBS):
                producer.send(Message(TOPIC, b"picture-%d" % number))
        work(client)


def work(client: Client) -> None:
    done: set[bytes] = set()
    with PopConsumer(GROUP, client=client) as first, PopConsumer(GROUP, client=client) as second:

        def handle(message: MessageExt) -> None:
            if message.body == b"picture-3" and message.reconsume_times == 0:
                raise ConsumeLater(1)  # again after a second, on any worker
            line = f"{message.body.decode()} try {message.reconsume_times + 1}\n"
            print(line, end="", flush=True)  # in one write, since two workers print at once
            done.add(message.body)
            if len(done) == JOBS:
                first.stop()
                second.stop()

        other = threading.Thread(target=second.run, args=(TOPIC, handle), kwargs={"at_once": 2})
        other.start()
        first.run(TOPIC, handle, at_once=2)
        other.join()


if __name__ == "__main__":
    main(sys.argv[1])
