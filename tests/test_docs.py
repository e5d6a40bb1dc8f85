"""Every Python example of README and docs runs, as it is printed, on a cluster of our own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMESERVER = "127.0.0.1:9876"
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def examples() -> list[object]:
    return [
        pytest.param(block, id=f"{page.name}-{number}", marks=[pytest.mark.spark] if "pyspark" in block else [])
        for page in PAGES
        for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
    ]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("example", examples())
def test_an_example_runs(example: str, cluster: EmbeddedCluster) -> None:
    code = example.replace(NAMESERVER, cluster.nameserver)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert missing == []
