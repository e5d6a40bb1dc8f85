"""The NameServer as a process: its arguments, its lines, its signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvConfig, PutKvConfig
from pyrmq_core.servers.nameserver import NameServerConfig, main

ROOT = Path(__file__).parent.parent.parent.parent.parent
BOOTED = "The Name Server boot success. serializeType=JSON, address "


@contextmanager
def process(*arguments: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pyrmq_core.servers.nameserver", *arguments]
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def booted_address(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    line = next(line for line in started.stdout if line.startswith(BOOTED))
    return line.removeprefix(BOOTED).strip()


async def is_open(pool: ConnectionPool, address: str) -> bool:
    try:
        await pool.call(address, GetKvConfig("N", "k").to_command(), timeout=5)
    except NetworkError:
        return False
    return True


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_says_where_it_is_and_a_signal_ends_it_in_order(tmp_path: Path, stop: signal.Signals) -> None:
    kv = tmp_path / "kv.json"
    settings = tmp_path / "namesrv.conf"
    settings.write_text(f"listenPort=0\nkvConfigPath={kv}\n")
    with process("-c", str(settings), "-n", "ignored:1", home=tmp_path) as started:
        address = await trio.to_thread.run_sync(booted_address, started)
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            assert (await pool.call(address, PutKvConfig("N", "k", "v").to_command(), timeout=10)).code == 0
            started.send_signal(stop)
            with trio.fail_after(60):
                while await is_open(pool, address):  # the connection and then the port go
                    pass
            nursery.cancel_scope.cancel()
        output, errors = await trio.to_thread.run_sync(started.communicate)
        assert started.returncode == 0, errors
    assert json.loads(kv.read_text()) == {"configTable": {"N": {"k": "v"}}}
    assert "Traceback" not in output + errors


async def test_the_file_that_was_loaded_is_named(tmp_path: Path) -> None:
    settings = tmp_path / "namesrv.conf"
    settings.write_text("listenPort=0\nserverWorkerThreads=4\n")
    with process("-c", str(settings), home=tmp_path) as started:
        assert started.stdout is not None
        first = await trio.to_thread.run_sync(started.stdout.readline)
        assert first == f"load config properties file OK, {settings}\n"
        await trio.to_thread.run_sync(booted_address, started)
        started.terminate()
        _, errors = await trio.to_thread.run_sync(started.communicate)
    assert "settings without effect here: serverWorkerThreads" in errors
    assert started.returncode == 0


def test_p_prints_every_setting_sorted_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("orderMessageEnable=true\nlistenPort=1234\n")
    assert main(["-p", "-c", str(file), "--port", "4321"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == sorted(lines)
    printed = dict(line.split("=", 1) for line in lines)
    assert (printed["orderMessageEnable"], printed["listenPort"]) == ("true", "4321")
    assert printed.keys() == NameServerConfig().to_settings().keys()


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--unknown"], ["more"]])
def test_wrong_use_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_names_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "127.0.0.1:9876" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-c", "/nowhere/namesrv.conf"], "cannot read the settings in /nowhere/namesrv.conf"),
        (["--port", "70000"], "listenPort=70000: a port is 0 to 65535"),
        (["--host", "192.0.2.1", "--port", "0"], "cannot listen on 192.0.2.1:0"),
    ],
)
def test_what_fails_is_one_line_and_1(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    errors = capsys.readouterr().err.strip()
    assert line in errors
    assert "\n" not in errors


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
