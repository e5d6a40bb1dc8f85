"""A stranger's requests to a NameServer harm neither its files nor its log nor its clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stranger import ROOT, ServerProcess, Stranger, nameserver_process, request

CLUSTER = {"clusterName": "C", "brokerId": 0, "haServerAddr": "127.0.0.1:2"}


def test_a_broker_name_writes_no_line_of_its_own_into_the_log(tmp_path: Path) -> None:
    with nameserver_process(tmp_path) as nameserver:
        stranger = nameserver.stranger()
        for name in ("b\nFORGED name", "b\rFORGED name"):
            stranger.ask(103, {**CLUSTER, "brokerName": name, "brokerAddr": "127.0.0.1:1\nFORGED address"})
            stranger.ask(103, {**CLUSTER, "brokerName": name, "brokerAddr": "127.0.0.1:1"})
            stranger.ask(216, {"topic": f"{name}\u2028FORGED topic"})
        nameserver.stop()
        assert "FORGED" in nameserver.output()
        assert not [line for line in nameserver.output().splitlines() if line.startswith("FORGED")]


def test_half_a_surrogate_keeps_no_other_value_from_the_file(tmp_path: Path) -> None:
    with nameserver_process(tmp_path) as nameserver:
        stranger, honest = nameserver.stranger(), nameserver.stranger()
        for value in ("\ud800", "a\udfffb"):
            answer = stranger.ask(100, {"namespace": "N", "key": "bad", "value": value})
            assert answer is None or answer.code != 0
            stranger = nameserver.stranger()
        answer = honest.ask(100, {"namespace": "N", "key": "good", "value": "v"})
        assert answer is not None
        assert answer.code == 0
        assert json.loads((tmp_path / "kv.json").read_text()) == {"configTable": {"N": {"good": "v"}}}


def test_kv_configuration_of_a_stranger_is_bounded(tmp_path: Path) -> None:
    with nameserver_process(tmp_path, kvConfigMaxBytes=1 << 20) as nameserver:
        stranger, honest = nameserver.stranger(), nameserver.stranger()
        requested = ({"namespace": "N", "key": key, "value": "x" * 60_000} for key in range(40))
        answers = [answer for fields in requested if (answer := stranger.ask(100, fields)) is not None]
        assert [answer.code for answer in answers] == 17 * [0] + 23 * [1]
        assert (tmp_path / "kv.json").stat().st_size <= 1 << 20
        assert "kvConfigMaxBytes" in answers[-1].remark
        lookup = honest.ask(101, {"namespace": "N", "key": "0"})
        assert lookup is not None
        assert lookup.code == 0


def test_paths_of_the_settings_stay(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    with nameserver_process(tmp_path / "home", configBlackList="") as nameserver:
        for name in ("kvConfigPath", "configStorePath", "rocketmqHome", "tls.server.keyPath"):
            answer = nameserver.stranger().ask(318, body=f"{name}={precious}\n".encode())
            assert answer is not None
            assert answer.code == 16
        answer = nameserver.stranger().ask(100, {"namespace": "../../precious", "key": "../precious", "value": "v"})
        assert answer is not None
        assert nameserver.stop() == 0
    assert not precious.exists()
    assert not (tmp_path / "home" / "precious").exists()


def test_ten_thousand_settings_that_are_none_hold_up_no_other(tmp_path: Path) -> None:
    """Each was compared with every existing name: half a millisecond, and a line of the log."""
    with nameserver_process(tmp_path) as nameserver:
        body = "".join(f"listenPorz{number}=1\n" for number in range(3_000)).encode()
        assert nameserver.stranger().ask(318, body=body) is not None
        assert nameserver.output().count("is not known") <= 20


@pytest.mark.parametrize("name", ["aclEnable", "authorizationEnabled", "migrateAuthFromV1Enabled"])
def test_a_nameserver_that_would_control_less_than_it_says_does_not_start(tmp_path: Path, name: str) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort=0\n{name}=true\n")
    command = [sys.executable, "-m", "pyrmq_core.servers.nameserver", "-c", str(conf)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"{name}=true" in done.stderr


def longest_lookup(nameserver: ServerProcess, honest: Stranger, goes_on: Callable[[], bool]) -> float:
    """Returns the most processor time that the server took before it answered a look-up, while `goes_on()`."""
    longest = 0.0
    while goes_on():
        began = nameserver.processor_seconds
        assert honest.ask(105, {"topic": "TBW102"}) is not None
        longest = max(longest, nameserver.processor_seconds - began)
    return longest


def test_five_thousand_silent_brokers_of_one_connection_hold_up_no_other(tmp_path: Path) -> None:
    """Each of them was searched among all: two seconds in which no request was answered.

    Removing all of them takes less than half of the work of registering them, and a look-up waits for a part of it.
    """
    with nameserver_process(tmp_path, scanNotActiveBrokerInterval=1000) as nameserver:
        stranger, honest, watcher = nameserver.stranger(), nameserver.stranger(), nameserver.stranger()
        registered = nameserver.processor_seconds
        for start in range(0, 5_000, 50):
            names = range(start, start + 50)
            fields = [{**CLUSTER, "brokerName": f"s{n}", "brokerAddr": f"h:{n}"} for n in names]
            frames = (request(103, {**header, "heartbeatTimeoutMillis": 12_000}) for header in fields)
            stranger.send(b"".join(frames))
            for _ in names:
                answer = stranger.read()
                assert answer is not None
                assert answer.code == 0
        registered = nameserver.processor_seconds - registered
        end = time.monotonic() + 120
        requested = 0

        def some_live() -> bool:
            nonlocal requested
            requested += 1
            if requested % 50:
                return True
            answer = watcher.ask(901, {"clusterName": "C", "brokerName": "s4999"})
            return time.monotonic() < end and answer is not None and b"h:4999" in answer.body

        assert longest_lookup(nameserver, honest, some_live) < registered / 2
        assert time.monotonic() < end
