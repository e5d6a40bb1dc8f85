"""The examples of docs that need what our own broker leaves out, on Apache RocketMQ 5.4.0."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import ApacheCluster, ask
from tests.test_doc_examples import NAMESERVER
from tests.test_docs import PAGES

BLOCK = re.compile(r"^```python apache\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, apache_5: ApacheCluster) -> None:
    for broker in apache_5.brokers.values():
        reported = ask(broker.address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"recallMessageEnable=true"))
        assert reported.code == 0
    code = example.replace(NAMESERVER, apache_5.nameserver.address)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
