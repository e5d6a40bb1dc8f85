"""A broker process whose store is removed, damaged or short of descriptors: it names the error, and goes on serving."""

import shutil
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stranger import Answer, ServerProcess, Stranger, broker_process

SEND, PULL, DELETE_TOPIC = 10, 11, 215
SUCCESS, SYSTEM_ERROR, SERVICE_NOT_AVAILABLE = 0, 1, 14
SECONDS = 60.0


def send(stranger: Stranger, topic: str = "T", body: bytes = b"body", queue_id: int = 0) -> Answer:
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": "",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    answer = stranger.ask(SEND, fields, body)
    assert answer is not None
    return answer


def pull(stranger: Stranger, offset: int = 0, topic: str = "T", queue_id: int = 0) -> Answer:
    fields = {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    }
    answer = stranger.ask(PULL, fields)
    assert answer is not None
    return answer


def until_refused(broker: ServerProcess, stranger: Stranger) -> Answer:
    deadline = time.monotonic() + SECONDS
    while (answer := send(stranger)).code == SUCCESS:
        assert time.monotonic() < deadline, broker.output()
    return answer


def removed(folder: Path) -> None:
    """Removes a folder in which a broker makes files meanwhile."""
    deadline = time.monotonic() + SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        assert time.monotonic() < deadline


@pytest.mark.parametrize("what", ["commitlog", "commitlog/00000000000000000000", "consumequeue", "."])
def test_files_that_vanish_under_a_running_broker_end_storing(tmp_path: Path, what: str) -> None:
    with broker_process(tmp_path, flushIntervalCommitLog=50, flushIntervalConsumeQueue=50) as broker:
        stranger = broker.stranger()
        assert send(stranger).code == SUCCESS
        gone = tmp_path / "store" / what
        gone.unlink() if gone.is_file() else removed(gone)
        answer = until_refused(broker, stranger)
        assert answer.code == SERVICE_NOT_AVAILABLE
        assert "was removed or replaced while" in answer.remark
        assert send(stranger).code == SERVICE_NOT_AVAILABLE
        assert "nothing more is stored" in broker.output()
        assert pull(broker.stranger(), 1 << 40).code == 21
        assert broker.is_alive


def test_with_sync_flush_nothing_is_acknowledged_after_the_log_vanished(tmp_path: Path) -> None:
    with broker_process(tmp_path, flushDiskType="SYNC_FLUSH", flushIntervalConsumeQueue=600_000) as broker:
        stranger = broker.stranger()
        assert send(stranger).code == SUCCESS
        shutil.rmtree(tmp_path / "store" / "commitlog")
        for _ in range(3):
            answer = send(stranger)
            assert answer.code == SERVICE_NOT_AVAILABLE
            assert "was removed or replaced while" in answer.remark


def test_a_broker_without_descriptors_goes_on_storing(tmp_path: Path) -> None:
    """Idle connections take every descriptor; flushes and new queues and segments go on."""
    limit = 128
    settings = {"mappedFileSizeCommitLog": 4096, "flushIntervalCommitLog": 50, "flushIntervalConsumeQueue": 50}
    with broker_process(tmp_path, file_limit=limit, **settings) as broker, ExitStack() as stack:
        stranger = broker.stranger()
        assert send(stranger).code == SUCCESS
        host, port = broker.address.rsplit(":", 1)
        for _ in range(2 * limit):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=SECONDS))
        for number in range(400):
            answer = send(stranger, "T", b"x" * 1000, number % 4)
            assert answer.code == SUCCESS, (answer, broker.output()[-2000:])
        assert broker.is_alive
        stack.close()
        assert broker.stop() == 0, broker.output()[-2000:]
        assert "stored" not in broker.output()
        assert not (tmp_path / "store" / "abort").exists()


def test_a_damaged_queue_is_an_error_of_its_own_pull(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        stranger = broker.stranger()
        for queue_id in (0, 1):
            for number in range(40):
                assert send(stranger, "T", b"%d" % number, queue_id).code == SUCCESS
        with (tmp_path / "store/consumequeue/T/0/00000000000000000000").open("r+b") as queue:
            queue.seek(35 * 20)
            queue.write(bytes(40))
        answer = pull(stranger, 10)
        assert (answer.code, answer.header["extFields"]["nextBeginOffset"]) == (SUCCESS, "35")  # type: ignore[index]
        damaged = pull(stranger, 35)
        assert damaged.code == SYSTEM_ERROR
        assert "entry 35 of queue 0 of topic T" in damaged.remark
        assert pull(stranger, 37).code == pull(stranger, 35, "T", 1).code == SUCCESS
        assert send(stranger).code == SUCCESS
