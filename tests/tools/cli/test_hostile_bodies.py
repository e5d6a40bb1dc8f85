"""Commands over bodies that cannot be read, or unpack to many times their size: what is shown, said and held."""

from __future__ import annotations

import csv
import json
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio

from pyrmq_core import Client, Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from pyrmq_core.errors import RecordError
from pyrmq_core.protocol.messages.readable import UnreadableRecord
from pyrmq_core.tools.cli.export import Undecodable
from tests.support.commands import ended, started
from tests.support.raw_send_backs import send
from tests.support.terminal import Terminal

COMPRESSED = 1
GOOD, MIB = 6, 2**20
# Unpacked, the bodies have twice what the commands may hold; each is JSON that takes 40 times its size.
LARGE, LARGE_BYTES = 288, 4 * MIB - 512
HELD_MIB = 512


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Has a record that is no zlib amid good messages in T, and in Large one body many times."""
    with EmbeddedCluster(topics={"T": 1, "Large": 1}) as cluster:
        with Producer("senders", nameserver=cluster.nameserver) as producer:
            for number in range(GOOD):
                producer.send(Message("T", b'{"n": %d, "text": "needle"}' % number, keys="k"))
                if number == 2:
                    trio.run(send_packed, cluster, "T", [b"no zlib"])
        large = b'{"n": 1, "list": [' + b"{}," * ((LARGE_BYTES - 40) // 3) + b"{}]}"
        trio.run(send_packed, cluster, "Large", [zlib.compress(large, 9)] * LARGE)
        yield cluster


async def send_packed(cluster: EmbeddedCluster, topic: str, bodies: list[bytes]) -> None:
    """Sends bodies that say that they are compressed: every broker takes them."""
    async with Client(nameserver=cluster.nameserver) as client:
        for body in bodies:
            command = send(topic, sys_flag=COMPRESSED, body=body).to_command()
            answer = await client._session.call(cluster.brokers["broker-a"], command, timeout=30)
            assert answer.code == 0


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


READS = (
    ("search", "T", "--since", "1h", "--oldest-first", "--contains", "needle"),
    ("search", "T", "--since", "1h", "--oldest-first", "--where", "json.n >= 0"),
    ("search", "T", "--since", "1h", "--oldest-first", "--regex", "need.e"),
    ("tail", "T"),
)


@pytest.mark.parametrize("words", READS)
def test_a_bad_record_is_passed_over_named_and_counted(terminal: Terminal, words: tuple[str, ...]) -> None:
    result = terminal.run(*words, "-o", "{queueOffset}")
    assert (result.exit_code, result.stdout.split()) == (0, ["0", "1", "2", "4", "5", "6"])
    assert "the message at offset 3: a body is marked as zlib and cannot be inflated" in result.stderr
    assert "records that cannot be read and are passed over: 1" in result.stderr
    failed = terminal.run(*words, "--on-undecodable", "fail")
    assert failed.exit_code == 1
    assert "the message at offset 3: a body is marked as zlib" in failed.stderr


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_has_all_others_and_says_so(terminal: Terminal, tmp_path: Path, form: str) -> None:
    def offsets(target: Path) -> list[int]:
        if form == "parquet":
            return [int(offset) for offset in pq.read_table(target).column("queueOffset").to_pylist()]
        with target.open(newline="") as file:
            rows = csv.DictReader(file) if form == "csv" else map(json.loads, file)
            return [int(row["queueOffset"]) for row in rows]

    export = ("export", "T", "--since", "1h", "--format", form)
    failed = terminal.run(*export, "--to", str(tmp_path / "a"))
    assert (failed.exit_code, offsets(tmp_path / "a")) == (1, [0, 1, 2, 4, 5, 6])
    assert "records that cannot be read and are not in" in " ".join(failed.stderr.split())
    skipped = terminal.run(*export, "--to", str(tmp_path / "b"), "--on-undecodable", "skip")
    assert (skipped.exit_code, offsets(tmp_path / "b")) == (0, [0, 1, 2, 4, 5, 6])
    assert "records that cannot be read and are left out: 1" in skipped.stderr
    kept = terminal.run(*export, "--to", str(tmp_path / "c"), "--on-undecodable", "keep")
    assert (kept.exit_code, offsets(tmp_path / "c")) == (0, [0, 1, 2, 3, 4, 5, 6])
    assert "records that cannot be read and are kept as they are stored: 1" in kept.stderr
    if form == "parquet":
        assert pq.read_table(tmp_path / "c").column("body")[3].as_py() == b"no zlib"


LARGE_READS = (
    ("search", "Large", "--since", "1h", "--contains", '"n": 1'),
    ("search", "Large", "--since", "1h", "--regex", "list", "--max", "300"),
    ("tail", "Large"),
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("words", LARGE_READS)
def test_memory_does_not_grow_with_what_bodies_unpack_to(
    cluster: EmbeddedCluster, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Prints a line for each message, and looks at the process while it waits for the reader of the last ones."""
    process = started(*words, "-o", "{queueOffset} {topic:>4096}", "-n", cluster.nameserver, home=tmp_path)
    assert process.stdout is not None
    peak_mib = 0
    for _ in range(LARGE - 32):  # more than the pipe holds is left
        assert process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak_mib = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    process.send_signal(signal.SIGTERM)
    ended(process)
    assert 0 < peak_mib < HELD_MIB


def test_the_newest_match_comes_first_whatever_it_unpacks_to(terminal: Terminal) -> None:
    newest = ("--max", "1", "-o", "{queueOffset}")
    for condition in (("--contains", '"n": 1'), ("--where", "json.n == 1")):
        result = terminal.run("search", "Large", "--since", "1h", *condition, *newest)
        assert (result.exit_code, result.stdout) == (0, f"{LARGE - 1}\n")


@pytest.mark.parametrize("choice", ["fail", "keep"])
def test_a_damaged_head_is_neither_kept_nor_the_only_loss(choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    undecodable, error = Undecodable(choice), RecordError("byte 0 begins no record")
    assert undecodable.message(UnreadableRecord(error, 0)) is None
    if choice == "fail":
        with pytest.raises(RecordError):
            undecodable.end("a.csv")
        assert "not in a.csv, nor are the offsets that are not read: 1" in error.__notes__[0]
    else:
        undecodable.end("a.csv")
        text = "kept as they are stored, but for 1 damaged ones with all behind them: 1"
        assert text in capsys.readouterr().err
