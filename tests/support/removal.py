"""An embedded cluster with small segments, of which a test has all but the last one removed."""

from pathlib import Path
from typing import Final

from pyrmq_core import Message
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import ask

SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": "600",
    "fileReservedTime": "0",
    "deleteWhen": "",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
    "cleanResourceInterval": "100",
    "flushIntervalCommitLog": "20",
    "flushIntervalConsumeQueue": "20",
}
MESSAGES: Final = 300


def messages(topic: str) -> list[Message]:
    """Returns messages for some segments; their bodies are their numbers, with blanks behind."""
    return [Message(topic, str(number).encode().ljust(1000)) for number in range(MESSAGES)]


def remove_old(address: str) -> None:
    """Has a broker remove its old segments, as far as its checkpoint has them, as deleteExpiredCommitLog does."""
    assert ask(address, Command(RequestCode.DELETE_EXPIRED_COMMITLOG), timeout=30).code == 0


def segments(store: Path) -> int:
    return len(list((store / "commitlog").iterdir()))
