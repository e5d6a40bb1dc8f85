"""Masters and slaves as processes, ours and RocketMQ's: messages of every kind for one, and the files of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.record import StoredRecord
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, GetMinOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.servers.broker.store.batch_queue import BATCH_ENTRY_BYTES
from pyrmq_core.servers.broker.store.formats import ENTRY
from tests.support.apache import BROKER_SETTINGS, ApacheBroker, ask
from tests.support.our_cluster import OurServer
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import USED_QUEUES, index_bytes, message, read, send_some, send_whole, wait_end

Server: TypeAlias = OurServer | ApacheBroker

SECONDS = 60.0
LOG = "commitlog"
QUEUES = ("consumequeue", "batchconsumequeue")
INDEX_HEAD_BYTES, SLOT_BYTES, INDEX_ENTRY_BYTES = 40, 4, 20
PREPARED, COMMIT, ROLLBACK = 4, 8, 12


def send_turn(address: str, version: str, turn: int) -> None:
    """Sends messages of every kind that a release stores."""
    send_some(address, turn)
    if version != "4.9.7":
        send_whole(address, turn)


def send_more(address: str, version: str, turn: int) -> None:
    """Sends long properties, ended transactions, and messages that are delivered later; returns when they are."""
    assert ask(address, message("Wide", 0, b"wide", f"P\x01{'x' * 30_000}\x02").to_command()).code == 0
    for number, end in enumerate((COMMIT, ROLLBACK)):
        end_transaction(address, f"{turn}-{number}", end)
    delayed = ["DELAY\x011\x02"]
    if version != "4.9.7":
        delayed.append("TIMER_DELAY_MS\x011000\x02")
        assert ask(address, message("Later", 0, b"waits", "TIMER_DELAY_SEC\x013600\x02").to_command()).code == 0
    for properties in delayed:
        assert ask(address, message("Later", 0, b"%d" % turn, properties).to_command()).code == 0
    wait_end(address, "Ended", 0, turn + 1)
    wait_end(address, "Later", 0, (turn + 1) * len(delayed))


def end_transaction(address: str, name: str, end: int) -> None:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{name}\x02"
    half = replace(message("Ended", 0, name.encode(), properties), sys_flag=PREPARED)
    answer = ask(address, half.to_command())
    assert answer.code == 0, answer.remark
    stored = MessageStored.from_command(answer)
    place = decode_offset_msg_id(stored.msg_ids).offset
    request = EndTransaction("P", stored.queue_offset, place, end, msg_id=name, transaction_id=name, topic="Ended")
    answer = ask(address, request.to_command())
    assert answer.code == 0, answer.remark


def figures(address: str) -> dict[str, str]:
    """Returns the runtime figures of a broker."""
    table: dict[str, str] = load_object(ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)).body, "")["table"]
    return table


def log_end(address: str) -> int:
    """Returns the end of a broker's log."""
    return int(figures(address)["commitLogMaxOffset"])


def contents_left(address: str) -> dict[tuple[str, int], list[StoredRecord]]:
    """Returns the records of every queue from its minimum offset on."""

    def start(topic: str, queue_id: int) -> int:
        return OffsetFound.from_command(ask(address, GetMinOffset(topic, queue_id).to_command())).offset

    return {key: list(read(address, *key, start(*key))) for key in USED_QUEUES}


def lag(master: OurServer) -> int | None:
    """Returns by how many bytes the only slave is behind; None without one."""
    slaves = json.loads(bytes(ask(master.address, Command(RequestCode.GET_BROKER_HA_STATUS)).body))["haConnectionInfo"]
    return slaves[0]["diff"] if slaves else None


def queues_in(store: Path) -> list[tuple[str, int]]:
    """Returns the queues that have files in a store."""
    return [(path.parent.name, int(path.name)) for folder in QUEUES for path in (store / folder).glob("*/*")]


def wait_copied(master: Server, slave: Server, queues: Sequence[tuple[str, int]] | None = None) -> None:
    """Returns when the slave has the log of a master that stores nothing more, and its queues, or those named."""

    def ends(server: Server) -> list[int]:
        compared = queues_in(master.store) if queues is None else queues
        answers = [ask(server.address, GetMaxOffset(*key).to_command()) for key in compared]
        return [log_end(server.address), *(OffsetFound.from_command(answer).offset for answer in answers)]

    wait_until(lambda: ends(slave) == ends(master), SECONDS)


def check_copy(copy: Path, original: Path, *, has_index: bool) -> int:
    """Checks that a stopped slave's files are its master's, except what the master stored after it.

    Returns the end of the slave's log. Of the index only the entries are compared, as the heads have later ones, too.
    """
    logs, others = log_files(copy), log_files(original)
    segments = sorted(logs)
    end = int(segments[-1]) + len(logs[segments[-1]])
    assert logs == {name: others[name][: len(data)] for name, data in logs.items()}
    assert list(logs) == list(others)[: len(logs)]
    mine, theirs = queue_files(copy), queue_files(original)
    assert mine.keys() <= theirs.keys()
    for path, data in theirs.items():
        length = BATCH_ENTRY_BYTES if path.startswith(QUEUES[1]) else ENTRY.size
        entries = [data[at : at + length] for at in range(0, len(data), length)]
        kept = [entry for entry in entries if any(entry) and int.from_bytes(entry[:8]) < end]
        assert mine.get(path, b"").rstrip(b"\0") == b"".join(kept).rstrip(b"\0"), path
    if has_index:
        for copy_index, original_index in zip(index_bytes(copy), index_bytes(original), strict=True):
            entries_at = INDEX_HEAD_BYTES + SLOT_BYTES * int(BROKER_SETTINGS["maxHashSlotNum"])
            entries_end = entries_at + INDEX_ENTRY_BYTES * int.from_bytes(
                copy_index[INDEX_HEAD_BYTES - 4 : INDEX_HEAD_BYTES]
            )
            assert entries_end > entries_at + INDEX_ENTRY_BYTES
            assert copy_index[entries_at:entries_end] == original_index[entries_at:entries_end]
    return end


def log_files(store: Path) -> dict[str, bytes]:
    """Returns the bytes of each segment of the log by its name, without the zeros behind them."""
    segments = {path.name: path.read_bytes().rstrip(b"\0") for path in sorted((store / LOG).iterdir())}
    return {name: data for name, data in segments.items() if data}  # Java makes segments before they are needed


def queue_files(store: Path) -> dict[str, bytes]:
    """Returns the bytes of queue files by path."""
    files = [path for folder in QUEUES for path in (store / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in files}
