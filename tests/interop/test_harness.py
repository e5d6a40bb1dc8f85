"""The promises of the harness: its servers can be killed, paused, restarted, and used by Java's own tools."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import (
    ApacheCluster,
    ApacheNameServer,
    ask,
    boot_broker,
    boot_cluster,
    free_port,
    registered_brokers,
)
from tests.support.jvm import JavaFailed

PRINTS_VERSION = """
import org.apache.rocketmq.common.MQVersion;

public class PrintsVersion {
    public static void main(String[] arguments) {
        System.out.println(arguments[0] + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
    }
}
"""


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def test_java_tools_see_the_cluster(apache: ApacheCluster) -> None:
    listed = apache.mqadmin("clusterList")
    for name, broker in apache.brokers.items():
        assert name in listed
        assert broker.address in listed


def test_a_small_java_program_runs_against_the_release(apache: ApacheCluster, tmp_path: Path) -> None:
    source = tmp_path / "PrintsVersion.java"
    source.write_text(PRINTS_VERSION)
    printed = apache.run_java(source, "this is ")
    assert printed.strip() == "this is V" + apache.version.replace(".", "_")


def test_a_java_program_that_fails_is_reported(apache_5: ApacheCluster, tmp_path: Path) -> None:
    source = tmp_path / "PrintsVersion.java"
    source.write_text(PRINTS_VERSION)
    with pytest.raises(JavaFailed, match="ArrayIndexOutOfBounds"):
        apache_5.run_java(source)


@pytest.mark.soak  # the tests of failures do the same with their brokers
def test_a_broker_is_killed_restarted_and_paused() -> None:
    as_by_default = ("-Dtls.server.mode=permissive",)
    settings = {"defaultTopicQueueNums": "3"}
    with boot_cluster("5.4.0", broker_settings=settings, java_options=as_by_default) as cluster:
        broker, nameserver = cluster.brokers["broker-a"], cluster.nameserver.address
        broker.kill()
        wait_for(lambda: registered_brokers(nameserver) == {})
        broker.restart(brokerClusterName="Renamed")
        assert registered_brokers(nameserver) == {"broker-a": {broker.address}}
        assert "Renamed" in cluster.mqadmin("clusterList")
        broker.pause()
        with pytest.raises(TimeoutError):
            ask(broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), timeout=0.3)
        broker.resume()
        answer = ask(broker.address, Command(RequestCode.GET_BROKER_CONFIG), timeout=20)
        assert b"defaultTopicQueueNums=3\n" in bytes(answer.body)
        home = cluster.home
    assert broker.process.pid is None
    assert not home.exists()


def test_a_broker_that_cannot_boot_says_why(apache_5: ApacheCluster) -> None:
    settings = {"listenPort": str(apache_5.brokers["broker-a"].port)}
    with (
        pytest.raises(JavaFailed, match=r"(?s)broker-c \(5\.4\.0\) ended with .*[Aa]ddress already in use"),
        boot_broker("5.4.0", apache_5.nameserver.address, "broker-c", settings=settings),
    ):
        pytest.fail("it booted")


def test_a_server_whose_port_was_taken_meanwhile_moves(tmp_path: Path) -> None:
    """The other process answers as a NameServer does."""
    with EmbeddedCluster(brokers=1) as ours:
        nameserver = ApacheNameServer("5.4.0", tmp_path, {}, ())
        nameserver.settings["listenPort"] = ours.nameserver.rpartition(":")[2]
        try:
            nameserver.start()
            assert nameserver.address != ours.nameserver
            assert registered_brokers(nameserver.address) == {}
        finally:
            nameserver.kill()


def test_a_free_port_is_given_once() -> None:
    assert len({free_port((-2, 0, 1)) for _ in range(20)}) == 20
    theirs = "from tests.support.apache import PORTS, _reserve; print(sum(not _reserve([port]) for port in PORTS))"
    printed = subprocess.run([sys.executable, "-c", theirs], capture_output=True, text=True, check=True).stdout
    assert int(printed) >= 40


def test_a_server_never_outlives_the_process_that_started_it(apache_5: ApacheCluster) -> None:
    starts_and_hangs = (
        "import pathlib, sys, tempfile, time\n"
        "from tests.support.jvm import JavaProcess\n"
        "process = JavaProcess('sleeper', ['sleep', '60'], pathlib.Path(tempfile.mkdtemp()) / 'log')\n"
        "process.start()\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", starts_and_hangs], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert Path(f"/proc/{pid}").exists() or sys.platform != "linux"
        starter.send_signal(signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
