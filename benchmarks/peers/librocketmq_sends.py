"""Run by a Python of its own that has `rocketmq==0.4.4`: NAMESERVER TOPIC THREADS COUNT. Prints sends a second."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.support.user_rows import SMALL


def main(nameserver: str, topic: str, threads: int, count: int) -> None:
    from rocketmq.client import Message, Producer  # type: ignore[import-not-found]

    producer: Any = Producer("librocketmq")
    producer.set_namesrv_addr(nameserver)
    producer.start()

    def send(calls: int) -> None:
        for number in range(calls):
            message = Message(topic)
            message.set_keys(SMALL.key(number))
            message.set_tags(SMALL.tag(number))
            for name, value in SMALL.properties(number).items():
                message.set_property(name, value)
            message.set_body(SMALL.body(number))
            producer.send_sync(message)

    send(100)
    callers = [threading.Thread(target=send, args=(count // threads,)) for _ in range(threads)]
    began = time.perf_counter()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print(f"rate {count // threads * threads / (time.perf_counter() - began):.1f}", flush=True)
    producer.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
