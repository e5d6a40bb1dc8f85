"""A broker process that is killed again and again while timer messages are sent to it and delivered by it."""

import random
import time

import pytest

from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from tests.support.apache import ask
from tests.support.our_cluster import boot_our_cluster

KILLS = 50
MAX_DELAY_MS = 8000
WAIT_SECONDS = 60


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_broker_killed_fifty_times_delivers_each_message_once_and_not_too_early() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - to run it again
    draw = random.Random(seed)
    due: dict[bytes, int] = {}
    with boot_our_cluster(("broker-a",)) as cluster:
        broker = cluster.brokers["broker-a"]
        for number in range(KILLS):
            end = time.monotonic() + draw.uniform(0.3, 2.5)
            while time.monotonic() < end:
                body, due_ms = b"%d-%d" % (number, len(due)), now_ms() + draw.randrange(1, MAX_DELAY_MS)
                if sent(broker.address, body, due_ms):
                    due[body] = due_ms
            broker.kill()
            broker.start()
        records = delivered(broker.address, due)
    times: dict[bytes, list[int]] = {}
    for record in records:
        times.setdefault(record.body, []).append(record.store_timestamp_ms)
    assert due.keys() - times.keys() == set()
    assert {body: stored for body, stored in times.items() if len(stored) > 1} == {}
    assert {body: due_ms - times[body][0] for body, due_ms in due.items() if times[body][0] < due_ms} == {}
    print(f"{len(due)} sent, {KILLS} kills")  # noqa: T201 - shown by `make soak`


def sent(address: str, body: bytes, due_ms: int) -> bool:
    properties = f"UNIQ_KEY\x01{body.decode()}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    message = SendMessage("P", "T", "TBW102", 1, 0, 0, now_ms(), 0, properties, body=body)
    try:
        return ask(address, message.to_command()).code == 0
    except (OSError, RocketMQError):
        return False


def delivered(address: str, wanted: dict[bytes, int]) -> list[StoredRecord]:
    """Returns all messages of the topic, when those that are wanted are among them, and some time after."""
    records: list[StoredRecord] = []
    deadline = time.monotonic() + WAIT_SECONDS
    missing, last = set(wanted), now_ms() + MAX_DELAY_MS + 2000
    while (missing and time.monotonic() < deadline) or now_ms() < last:
        answer = PullAnswer.from_command(ask(address, PullMessage("G", "T", 0, len(records), 32, 4).to_command()))
        page = list(iterate_records(answer.records, check_crc=True)) if answer.code == 0 else []
        records += page
        missing -= {record.body for record in page}
        if not page:
            time.sleep(0.05)
    return records


def now_ms() -> int:
    return time.time_ns() // 1_000_000
