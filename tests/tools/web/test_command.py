"""`pyrmq dev --web`, and what `pyrmq web` says without its libraries, as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.commands import ended, started


def test_dev_serves_its_page(tmp_path: Path) -> None:
    process = started("dev", "--brokers", "1", "--web", "--port", "0", "--web-port", "0", home=tmp_path)
    assert process.stdout is not None
    lines = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line)
        if "Ctrl-C stops" in line:
            break
    address = next(word for line in lines for word in line.split() if word.startswith("http://"))
    page = httpx.get(address, timeout=30)
    assert (page.status_code, "broker-a" in page.text) == (200, True)
    assert "Send a test message" in httpx.get(f"{address}send", timeout=30).text
    process.send_signal(signal.SIGINT)
    status, _, errors = ended(process)
    assert (status, errors) == (0, [])


@pytest.mark.parametrize(
    ("option", "value", "shown"), [("--namespace", "shop", "poured"), ("--timeout", "0.0001", "within 0.0001 s")]
)
def test_the_page_keeps_the_options_of_the_connection(option: str, value: str, shown: str, tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"shop%tea": 1, "tea": 1}) as cluster:
        with Producer("P", nameserver=cluster.nameserver, namespace="shop") as producer:
            producer.send(Message("tea", b"poured"))
        process = started("web", "--port", "0", "-n", cluster.nameserver, option, value, home=tmp_path)
        assert process.stdout is not None
        address = process.stdout.readline().split()[4].rstrip(";")
        text = httpx.get(f"{address}messages?topic=tea", timeout=60).text
        process.send_signal(signal.SIGINT)
        ended(process)
    assert shown in text


def test_without_the_libraries(tmp_path: Path) -> None:
    code = "import sys; sys.modules['starlette'] = None; from pyrmq_core.tools.cli import main; main()"
    words = [sys.executable, "-c", code, "web", "--port", "0"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert 'pip install "pyrmq-spark[web]"' in done.stderr
