"""`python -m pyrmq_core.servers.broker`: its flags, its signals, and its store after a SIGKILL."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.servers.broker.nameservers import nameservers
from tests.servers.broker.serving import SMALL_FILES, message, until

PROGRAM = (sys.executable, "-m", "pyrmq_core.servers.broker")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}


def settings_file(directory: Path, **settings: str) -> Path:
    given = {"storePathRootDir": str(directory / "store"), **SMALL_FILES, **settings}
    path = directory / "broker.conf"
    path.write_text("# settings\n" + "".join(f"{name} = {value}\n" for name, value in given.items()))
    return path


def spawned(*arguments: str, program: Sequence[str] = PROGRAM) -> "subprocess.Popen[str]":
    return subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


@asynccontextmanager
async def started(
    *arguments: str, program: Sequence[str] = PROGRAM
) -> AsyncIterator[tuple["subprocess.Popen[str]", str]]:
    """Yields the process and the address it listens on; kills it if the test left it alive."""
    process = spawned(*arguments, program=program)
    output = process.stdout
    assert output is not None
    try:
        line = await trio.to_thread.run_sync(lambda: next(line for line in output if "boot success" in line))
        yield process, line.partition("]")[0].rpartition(" ")[2]
    finally:
        process.kill()
        process.wait(60)
        output.close()


async def acknowledged_until_killed(process: "subprocess.Popen[str]", address: str, enough: int) -> list[bytes]:
    """Sends from several tasks; the process is killed while they send. Returns the acknowledged bodies."""
    acknowledged: list[bytes] = []

    async def send(pool: ConnectionPool, sender: int) -> None:
        try:
            for number in range(100_000):
                body = b"%d-%d" % (sender, number)
                answer = await pool.call(address, message("T", body, queue_id=sender).to_command(), timeout=30)
                assert answer.code == 0
                acknowledged.append(body)
        except NetworkError:
            pass

    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with trio.open_nursery() as senders:
            for sender in range(4):
                senders.start_soon(send, pool, sender)
            await until(lambda: len(acknowledged) >= enough)
            process.send_signal(signal.SIGKILL)
        await pool.aclose()
    return acknowledged


async def bodies(address: str) -> list[bytes]:
    stored_bodies: list[bytes] = []
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for queue_id in range(4):
            offset = 0
            while True:
                pull = PullMessage("G", "T", queue_id, offset, 32)
                answer = PullAnswer.from_command(await pool.call(address, pull.to_command(), timeout=30))
                if answer.code != 0:
                    break
                stored_bodies += [record.body for record in iterate_records(answer.records, check_crc=True)]
                offset = answer.next_begin_offset
        await pool.aclose()
    return stored_bodies


async def test_sigkill_loses_no_acknowledged_message(tmp_path: Path) -> None:
    arguments = ("-c", str(settings_file(tmp_path)), "--port", "0")
    async with started(*arguments) as (process, address):
        acknowledged = await acknowledged_until_killed(process, address, 300)
    assert (tmp_path / "store" / "abort").exists()
    async with started(*arguments) as (_, address):
        stored_bodies = await bodies(address)
        assert set(acknowledged) <= set(stored_bodies)
        assert len(stored_bodies) == len(set(stored_bodies))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_stops_in_order_and_the_next_start_reads_nothing_again(tmp_path: Path, number: int) -> None:
    async with nameservers() as (server,):
        path = settings_file(tmp_path, namesrvAddr=server.address, brokerName="b1")
        arguments = ("-c", str(path), "--port", "0")
        async with started(*arguments) as (process, address):
            async with trio.open_nursery() as nursery:
                pool = ConnectionPool(nursery)
                await pool.call(address, message("T", b"kept").to_command(), timeout=30)
                await pool.aclose()
            process.send_signal(number)
            assert await trio.to_thread.run_sync(process.wait, 30) == 0
        assert server.reported[-1][1].code == RequestCode.UNREGISTER_BROKER
        assert not (tmp_path / "store" / "abort").exists()
        assert (tmp_path / "store" / "config" / "topics.json").exists()
        async with started(*arguments) as (_, address):
            assert await bodies(address) == [b"kept"]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=50, env={**ENVIRONMENT, **environment}
    )


def test_p_prints_every_setting_and_ends(tmp_path: Path) -> None:
    path = settings_file(tmp_path, brokerName="b7", noSuchSetting="1")
    printed = run("-c", str(path), "-p", "-n", "127.0.0.1:9", "--port", "11", "--host", "127.0.0.1")
    lines = printed.stdout.splitlines()
    assert printed.returncode == 0
    assert lines == sorted(lines)
    expected = {
        "brokerName=b7",
        "listenPort=11",
        "namesrvAddr=127.0.0.1:9",
        "brokerIP1=127.0.0.1",
        "flushDiskType=ASYNC_FLUSH",
    }
    assert expected <= set(lines)
    assert "there is no such setting: noSuchSetting" in printed.stderr
    assert "namesrvAddr=127.0.0.1:8" in run("-p", NAMESRV_ADDR="127.0.0.1:8").stdout


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("-c", "/nowhere/broker.conf"), 1, "/nowhere/broker.conf cannot be read"),
        (("--port", "x"), 2, "invalid int value"),
        (("--nothing",), 2, "unrecognized arguments"),
    ],
)
def test_wrong_use_is_reported_in_one_line(arguments: tuple[str, ...], status: int, text: str) -> None:
    ended = run(*arguments)
    assert (ended.returncode, text in ended.stderr, "Traceback" in ended.stderr) == (status, True, False)


async def test_a_directory_is_one_brokers(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with started("-c", str(path), "--port", "0") as (_, address):
        second = await trio.to_thread.run_sync(run, "-c", str(path), "--port", "0")
        assert second.returncode == 1
        assert f"another broker holds {tmp_path / 'store'}" in second.stderr
        third = await trio.to_thread.run_sync(
            run,
            "-c",
            str(settings_file(tmp_path, storePathRootDir=str(tmp_path / "other"))),
            "--port",
            address.rpartition(":")[2],
        )
        assert (third.returncode, "cannot listen on" in third.stderr) == (1, True)


async def test_nohup_keeps_it_from_the_end_of_its_terminal(tmp_path: Path) -> None:
    """`nohup` has SIGHUP ignored, which a handler for it would undo; SIGTERM then finds the broker at work."""
    arguments = ("-c", str(settings_file(tmp_path)), "--port", "0")
    async with started(*arguments, program=("nohup", *PROGRAM)) as (process, address):
        process.send_signal(signal.SIGHUP)
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            assert (await pool.call(address, message("T", b"kept").to_command(), timeout=30)).code == 0
            await pool.aclose()
        process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(process.wait, 30) == 0


def test_the_lines_of_a_log_are_sentences(tmp_path: Path) -> None:
    """No value of Python's own form stands in them."""
    file = settings_file(tmp_path, listenPort="0")
    lines = []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
        process = subprocess.Popen(
            [*PROGRAM, "-c", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if "boot success" in line:
                    process.send_signal(number)
    opened = [line.partition("store opened: ")[2] for line in lines if "store opened" in line]
    assert [line.partition(";")[0] for line in opened] == [
        "it was closed in order",
        "it was not closed in order",
        "it was closed in order",
    ]
    assert [line for line in lines if re.search(r"\w\(\w+=|\[\(|\('|\['|=None|<\w+ object", line)] == []
