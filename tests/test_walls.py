"""The walls of the house: imports run one way, rooms can be read in one sitting, each thing has one path."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import small_modules, wall_roads, walls

ROOT = Path(__file__).parent.parent
PACKAGES = ("pyrmq_core", "pyrmq_spark")
BESIDE = ("tests", "examples", "benchmarks")


def python_sources(*directories: str) -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for directory in directories
        for path in sorted((ROOT / directory).rglob("*.py"))
    }


@pytest.fixture(scope="module")
def packages() -> Iterator[dict[str, str]]:
    entries = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("pyspark_rocketmq.py", "pyrmq_pytest.py")}
    yield python_sources(*PACKAGES) | entries
    walls.parsed.cache_clear()
    walls.nodes.cache_clear()


def test_imports_run_one_way(packages: dict[str, str]) -> None:
    assert walls.import_faults(packages) == []


def test_clock_and_sockets_stay_where_they_live(packages: dict[str, str]) -> None:
    assert walls.clock_and_socket_faults(packages) == []


def test_sending_and_pulling_have_one_path_each(packages: dict[str, str]) -> None:
    assert wall_roads.road_faults(packages) == []


def test_no_imports_go_in_a_circle(packages: dict[str, str]) -> None:
    assert walls.circle_faults(packages) == []


def test_no_folder_has_too_many_modules(packages: dict[str, str]) -> None:
    assert walls.folder_faults(packages) == []


def test_small_modules_stand_with_their_importer(packages: dict[str, str]) -> None:
    spared = small_modules.TO_BE_JOINED | set(small_modules.APART)
    assert small_modules.small_module_faults(packages, spared) == []


def test_importing_a_module_does_nothing_else(packages: dict[str, str]) -> None:
    assert walls.effect_faults(packages) == []


def test_every_room_can_be_read_in_one_sitting(packages: dict[str, str]) -> None:
    assert walls.size_faults(packages | python_sources(*BESIDE)) == []


def test_every_file_opens_with_a_sentence(packages: dict[str, str]) -> None:
    assert walls.sentence_faults(packages | python_sources(*BESIDE)) == []


def test_tables_in_docstrings_stay_tables(packages: dict[str, str]) -> None:
    assert walls.table_faults(packages) == []


def test_docstrings_have_one_idea_a_sentence(packages: dict[str, str]) -> None:
    assert walls.semicolon_faults(packages) == []


def test_the_core_brings_in_nothing_heavy() -> None:
    heavy = "import sys, pyrmq_core; print(sorted({'pyspark', 'pyarrow', 'numpy', 'click', 'lz4'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", heavy], text=True, timeout=30).strip() == "[]"


@pytest.mark.parametrize("face", ["pyrmq_core", "pyrmq_core.blocking", "pyrmq_core.aio"])
def test_the_clients_wing_loads_neither_servers_nor_tools(face: str) -> None:
    load = f"import sys, {face}; [getattr({face}, name) for name in {face}.__all__ if name != 'EmbeddedCluster']"
    wings = "{name for name in sys.modules if name.startswith(('pyrmq_core.servers', 'pyrmq_core.tools'))}"
    shown = subprocess.check_output([sys.executable, "-c", f"{load}; print(sorted({wings}))"], text=True, timeout=60)
    assert shown.strip() == "[]"


def test_what_spark_looks_at_never_raises() -> None:
    without_pyspark = "import sys; sys.modules['pyspark'] = None; import pyspark_rocketmq"
    subprocess.run([sys.executable, "-c", without_pyspark], check=True, timeout=30)


# --- The project's text speaks of the project alone.

UNWANTED = {
    "an issue number": r"(?i)\bissues?\s+#?\d+|(?<![\w&#/])#\d{1,4}\b(?!\w)",
    "a machine's path": rf"{re.escape(f'{ROOT}/')}|{re.escape(f'{Path.home()}/')}|/(home|Users)/\w",
    "a package registry's address": (
        r"https?://[a-z0-9.-]*(pythonhosted|pypi|repo1?\.maven|repo\.maven|npmjs|debian|golang|crates)"
    ),
}


# Git treats a file with a zero byte so early as binary: pictures.
BINARY_WITHIN = 8000
# A library that is shipped as its authors publish it, with its licence beside it.
SHIPPED = "pyrmq_core/tools/web/static/uPlot."
# The project has more texts than this; a rule that skips too many fails.
FILES = 600


def text_faults(texts: dict[str, str]) -> list[str]:
    return [
        f"{path}:{number}: {what}: {line.strip()[:80]}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in UNWANTED.items()
        if re.search(pattern, line)
    ]


def test_the_text_speaks_of_the_project_alone() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30)
    if listed.returncode:
        pytest.skip("not a git checkout")
    texts = {}
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if not name or not path.is_file() or path == Path(__file__) or name.startswith(SHIPPED):
            continue
        content = path.read_bytes()
        if b"\0" not in content[:BINARY_WITHIN]:
            texts[name] = content.decode("utf-8", errors="replace")
    assert len(texts) > FILES
    assert text_faults(texts) == []


# --- The tests' tests: each wall, shown a breach, reports it.


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("pyrmq_core/model.py", "from pyrmq_core.errors import X", "pyrmq_core.model imports pyrmq_core.errors"),
        ("pyrmq_core/protocol/framing/frame.py", "import trio", "plain functions and values"),
        ("pyrmq_core/protocol/framing/frame.py", "def f():\n    import time", "plain functions and values"),
        ("pyrmq_core/client/routing/publish_info.py", "import random", "plain functions and values"),
        ("pyrmq_core/client/routing/age.py", "from time import monotonic", "plain functions and values"),
        ("pyrmq_core/servers/broker/store/records.py", "import logging", "plain functions and values"),
        ("pyrmq_core/client/client.py", "import socket", "outside network"),
        (
            "pyrmq_core/client/client.py",
            "from pyrmq_core.servers.broker import topics",
            "client imports pyrmq_core.servers.broker",
        ),
        (
            "pyrmq_core/client/client.py",
            "from pyrmq_core.servers import broker",
            "client imports pyrmq_core.servers.broker",
        ),
        ("pyrmq_core/client/client.py", "from ..servers import broker", "client imports pyrmq_core.servers.broker"),
        (
            "pyrmq_core/client/client.py",
            "from ..servers.nameserver.tables import T",
            "client imports pyrmq_core.servers.nameserver",
        ),
        ("pyrmq_core/client/client.py", "from pyrmq_core import Message", "client imports pyrmq_core"),
        (
            "pyrmq_core/servers/nameserver/server.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyrmq_core.client import Client",
            "nameserver imports pyrmq_core.client",
        ),
        (
            "pyrmq_core/embedded.py",
            "import importlib\nimportlib.import_module('pyrmq_core.tools.cli')",
            "embedded imports",
        ),
        ("pyrmq_core/aio/face.py", "from pyrmq_core.blocking import Client", "aio imports pyrmq_core.blocking"),
        ("pyrmq_core/loop_thread/portal.py", "from pyrmq_core.aio import Client", "imports pyrmq_core.aio"),
        ("pyrmq_core/client/client.py", "import numpy", "client.client imports numpy"),
        ("pyrmq_core/client/client.py", "import pyspark.sql", "client.client imports pyspark"),
        ("pyrmq_core/columnar/encoding/encode.py", "import pyspark", "imports pyspark"),
        ("pyrmq_core/protocol/body.py", "import lz4.frame", "imports lz4"),
        ("pyrmq_core/servers/broker/main.py", "import click", "imports click"),
        ("pyrmq_core/elsewhere.py", "import pyrmq_core.tools.cli", "imports pyrmq_core.tools.cli"),
        ("pyrmq_spark/write/writers.py", "from pyrmq_core.protocol import payload", "reaches below"),
        ("pyrmq_spark/write/writers.py", "from pyrmq_core.columnar.encoding.encode import x", "reaches below"),
        ("pyrmq_spark/write/writers.py", "import trio", "imports trio"),
        ("pyspark_rocketmq.py", "import pyspark", "imports pyspark"),
        ("elsewhere.py", "import os", "stands in no room"),
    ],
)
def test_a_forbidden_import_is_reported(path: str, source: str, fault: str) -> None:
    sources = {"pyrmq_core/servers/broker/__init__.py": '"""."""', "pyrmq_core/protocol/messages/payload.py": '"""."""'}
    assert [reported for reported in walls.import_faults(sources | {path: source}) if fault in reported]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pyrmq_core/protocol/messages/compression.py", "def f():\n    import lz4.frame, zstandard"),
        (
            "pyrmq_core/columnar/encoding/encode.py",
            "import numpy, pyarrow\nfrom pyrmq_core.protocol.messages.payload import Payload",
        ),
        ("pyrmq_core/network/connection/connection.py", "import socket, time, trio"),
        ("pyrmq_core/servers/broker/store/disk/disk_files.py", "import time"),
        ("pyrmq_core/tools/cli/main.py", "import click, rich\nfrom pyrmq_core.embedded import EmbeddedCluster"),
        (
            "pyrmq_spark/write/writers.py",
            "import pyspark, pyarrow\nfrom pyrmq_core import Message\nimport pyrmq_core.blocking",
        ),
        ("pyrmq_core/__init__.py", "from pyrmq_core.client.producer.producer import Producer"),
    ],
)
def test_an_allowed_import_is_not_reported(path: str, source: str) -> None:
    assert walls.import_faults({path: source}) == []


CIRCLES = {
    "inside a room": {"p/a.py": "from p.b import B", "p/b.py": "from p.a import A"},
    "for a type alone": {
        "p/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B",
        "p/b.py": "import p.a",
    },
    "late": {"p/a.py": "def f():\n    from p.b import B", "p/b.py": "from p import a"},
    "by a lazy table": {"p/__init__.py": "_LAZY = {'A': 'p.a'}", "p/a.py": "from p import B"},
    "between folders": {
        "p/x/a.py": "from p.y.b import B",
        "p/y/b.py": "X = 1",
        "p/y/c.py": "from p.x.d import D",
        "p/x/d.py": "Y = 1",
    },
    "of three": {"p/a.py": "import p.b", "p/b.py": "import p.c", "p/c.py": "import p.a"},
}


@pytest.mark.parametrize("sources", CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_reported(sources: dict[str, str]) -> None:
    (fault,) = walls.circle_faults(sources)
    assert fault.startswith("a circle of imports: p")


def test_imports_that_run_one_way_are_no_circle() -> None:
    sources = {"p/__init__.py": "from p.a import A", "p/a.py": "from p.y.b import B", "p/y/b.py": "import os"}
    assert walls.circle_faults(sources) == []


@pytest.mark.parametrize("count", [walls.MAX_FOLDER_MODULES, walls.MAX_FOLDER_MODULES + 1])
def test_a_folder_with_too_many_modules_is_reported(count: int) -> None:
    sources = {f"p/m{number}.py": "" for number in range(count)} | {"p/__init__.py": ""}
    assert bool(walls.folder_faults(sources)) == (count > walls.MAX_FOLDER_MODULES)


SHORT = "x = 1\n"
SMALL_MODULES = {
    "one importer": ({"p/a.py": "from p.b import B", "p/b.py": SHORT}, "p/b.py"),
    "one importer, by a string": ({"p/a.py": "_LAZY = {'B': 'p.b'}", "p/b.py": SHORT}, "p/b.py"),
    "two importers": ({"p/a.py": "from p.b import B", "p/c.py": "import p.b", "p/b.py": SHORT}, None),
    "long enough": ({"p/a.py": "from p.b import B", "p/b.py": SHORT * small_modules.MIN_LINES}, None),
    "a face": ({"p/__init__.py": "from p.b import B", "p/b.py": SHORT}, None),
    "a conversation": (
        {
            "p/a.py": f"import {small_modules.CONVERSATIONS[0].replace('/', '.')}b",
            f"{small_modules.CONVERSATIONS[0]}b.py": SHORT,
        },
        None,
    ),
}


@pytest.mark.parametrize(("sources", "fault"), SMALL_MODULES.values(), ids=SMALL_MODULES)
def test_a_small_module_with_one_importer_is_reported(sources: dict[str, str], fault: str | None) -> None:
    faults = small_modules.small_module_faults(sources, set())
    assert [text.partition(":")[0] for text in faults] == ([fault] if fault else [])
    assert small_modules.small_module_faults(sources, {fault} if fault else set()) == []


def test_an_entry_for_a_module_that_is_not_small_any_more_is_reported() -> None:
    (fault,) = small_modules.small_module_faults({"p/b.py": SHORT}, {"p/b.py"})
    assert "take it off the list" in fault


@pytest.mark.parametrize("source", ["import numpy\nnumpy.empty(1 << 24)", "print('loaded')"])
def test_an_effect_at_import_is_reported(source: str) -> None:
    assert walls.effect_faults({"p/a.py": source})
    assert walls.effect_faults({"p/__main__.py": source}) == []


def test_a_clock_in_a_pure_room_is_reported() -> None:
    sample = {"pyrmq_core/model.py": "from datetime import datetime\ndatetime.now()"}
    assert walls.clock_and_socket_faults(sample) == ["pyrmq_core/model.py:2: datetime.now in a room without a clock"]


def test_a_socket_outside_network_is_reported() -> None:
    source = "import trio\nasync def f():\n    await trio.open_tcp_stream('h', 1)"
    assert walls.clock_and_socket_faults({"pyrmq_core/client/pool.py": source})
    assert walls.clock_and_socket_faults({"pyrmq_core/network/pool.py": source}) == []


@pytest.mark.parametrize("lines", [walls.MAX_MODULE_LINES, walls.MAX_MODULE_LINES + 1])
def test_a_long_module_is_reported(lines: int) -> None:
    assert bool(walls.size_faults({"m.py": "x = 1\n" * lines})) == (lines > walls.MAX_MODULE_LINES)


@pytest.mark.parametrize("lines", [walls.MAX_FUNCTION_LINES, walls.MAX_FUNCTION_LINES + 1])
def test_a_long_function_is_reported(lines: int) -> None:
    source = "class C:\n    async def f(self):\n" + "        x = 1\n" * (lines - 1)
    assert bool(walls.size_faults({"m.py": source})) == (lines > walls.MAX_FUNCTION_LINES)


@pytest.mark.parametrize("source", ["", "import os", '"""Values"""', "# A comment is not a docstring."])
def test_a_file_without_a_sentence_is_reported(source: str) -> None:
    assert walls.sentence_faults({"m.py": source})


def test_a_table_that_became_prose_is_reported() -> None:
    table = '"""Rows.\n\nname    meaning\nid      its number,\n        which is unique\n"""'
    assert walls.table_faults({"m.py": table}) == []
    assert walls.table_faults({"m.py": table.replace("name    meaning", "name and meaning of it")})


def test_a_semicolon_in_a_docstring_is_reported() -> None:
    assert walls.semicolon_faults({"m.py": '"""Reads `a;b`, a list."""'}) == []
    assert walls.semicolon_faults({"m.py": 'def f():\n    """Reads a file; closes it."""'})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pyrmq_core/client/client.py", "RequestCode.SEND_MESSAGE_V2"),
        (
            "pyrmq_core/client/client.py",
            "from pyrmq_core.protocol.requests.broker.send_message import SendMessage",
        ),
        ("pyrmq_core/client/client.py", "from pyrmq_core.protocol.requests import pull_message as p"),
        ("pyrmq_core/client/consumer/pull/puller.py", "RequestCode.SEND_BATCH_MESSAGE"),
        ("pyrmq_core/client/producer/send/sender.py", "RequestCode.PULL_MESSAGE"),
        ("pyrmq_core/client/consumer.py", "Command(361, {})"),
        ("pyrmq_core/client/consumer.py", "Command(code=10)"),
        ("pyrmq_spark/worker.py", "RequestCode(320)"),
    ],
)
def test_leaving_the_path_is_reported(path: str, source: str) -> None:
    assert wall_roads.road_faults({path: source})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pyrmq_core/client/producer/send/sender.py", "RequestCode.SEND_MESSAGE_V2, SendMessage, Command(310)"),
        ("pyrmq_core/client/consumer/pull/puller.py", "PullMessage, RequestCode.LITE_PULL_MESSAGE"),
        ("pyrmq_core/servers/broker/processors/table.py", "RequestCode.SEND_MESSAGE"),
        ("pyrmq_core/client/consumer.py", "Command(34), 10, range(11)"),
    ],
)
def test_keeping_the_path_is_not_reported(path: str, source: str) -> None:
    assert wall_roads.road_faults({path: source}) == []


@pytest.mark.parametrize(
    "line",
    [
        "see issue 12",
        "fixes #12",
        f"open {ROOT}/x",
        "open " + "/ho" + "me/ann/x",
        "https://files.python" + "hosted.org/x",
    ],
)
def test_unwanted_text_is_reported(line: str) -> None:
    assert text_faults({"a.md": line})


@pytest.mark.parametrize("line", ["#!/bin/sh", "color #ff0000", "http://maven.apache.org/POM/4.0.0", "the issue 's' #"])
def test_plain_text_is_not_reported(line: str) -> None:
    assert text_faults({"a.md": line}) == []
