"""The stranger's own tools: its frames arrive as it wrote them, and it reads answers whole."""

from pathlib import Path

from tests.support.stranger import broker_process, nameserver_process


def test_a_nameserver_and_a_broker_answer_a_stranger(tmp_path: Path) -> None:
    with nameserver_process(tmp_path / "n") as nameserver, broker_process(tmp_path / "b") as broker:
        answer = nameserver.stranger().ask(105, {"topic": "nosuch"})
        assert answer is not None
        assert answer.code == 17
        answer = broker.stranger().ask(30, {"topic": "nosuch", "queueId": 0})
        assert answer is not None
        assert answer.body == b""
        assert nameserver.memory_bytes > 1 << 20
        assert broker.open_files > 3
        assert nameserver.stop() == broker.stop() == 0
