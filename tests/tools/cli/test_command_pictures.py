"""The pictures of tables in the docs: what the commands print now, but for figures, is what the pictures show.

    PYRMQ_PICTURES=docs/pictures .ci/env --python pytest tests/tools/cli/test_command_pictures.py

makes them again. Addresses, times and shares of disks are replaced in them.
"""

from __future__ import annotations

import html
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.tools.cli.commands import pyrmq

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = os.environ.get("PYRMQ_PICTURES")
WIDTH = 110
MOST_BYTES = 60_000
COMMANDS = {
    "brokers": "broker list",
    "topic-route": "topic route orders",
    "topic-stats": "topic stats orders",
    "groups": "group list",
    "progress": "group progress billing -t orders",
    "query": "query orders --key k3 --track",
    "health": "health --max-lag 5 --max-disk 100",
    "top": "top --once --groups 2",
}
# Each text keeps its width, so that columns stay below their headers.
REPLACED = (
    (re.compile(r"127\.0\.0\.1:\d{5}"), "10.20.0.7:10911"),
    (re.compile(r"\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d"), r"2026-05-01\g<1>08:30:00"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d{3})?\b"), lambda match: "08:30:00.125"[: len(match[0])]),
    (re.compile(r"\b[0-9A-F]{32}\b"), "0A141E0700012B193CB11B6A4D5E0003"),
    (re.compile(r"\b\d%"), "6%"),
)
# As rich has it, without the fonts that it loads from elsewhere.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}</style><defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    """A cluster with orders, most of them at one broker, and two groups that are behind."""
    with EmbeddedCluster(brokers=2) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        for topic in ("invoices", "orders"):
            admin.create_topic(topic, queues=2)
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            for number, (broker, queue_id) in enumerate((("a", 0), ("a", 1), ("a", 1), ("b", 0), ("b", 1), ("b", 1))):
                order = Message("orders", b'{"order": %d}' % number, tags="paid", keys=f"k{number}")
                producer.send(order, queue=MessageQueue("orders", f"broker-{broker}", queue_id))
        for group, offset in (("billing", 0), ("shipping", 1)):
            with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
                for queue in consumer.message_queues("orders"):
                    consumer.commit(queue, offset)
        yield cluster.nameserver


def printed(nameserver: str, words: str) -> str:
    """Returns what the command prints on a terminal of this width, without what no two runs share."""
    environment = {"NAMESRV_ADDR": nameserver, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    result = CliRunner().invoke(pyrmq, words.split(), env=environment, color=True)
    text = result.output
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    return text


def drawn(name: str, text: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), highlight=False)
    return console.export_svg(title=f"pyrmq {COMMANDS[name]}", unique_id=f"cli-{name}", code_format=SVG)


def words_of(svg: str) -> list[str]:
    """Returns a picture's words without figures: they move, and some are missing in a broker's first seconds."""
    words = html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()
    return [re.sub(r"\d+", "N", word) for word in words if not re.fullmatch(r"[\d.]+[a-z%]?", word)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_shows_what_the_command_prints(nameserver: str, name: str) -> None:
    svg = drawn(name, printed(nameserver, COMMANDS[name]))
    path = f"cli-{name}.svg"
    if PICTURES:
        (Path(PICTURES) / path).write_text(svg)
    picture = (DOCS / "pictures" / path).read_text()
    assert words_of(picture) == words_of(svg)
    assert len(words_of(svg)) > 10
    assert len(picture) < MOST_BYTES
    assert "127.0.0.1" not in picture
    assert "https://" not in picture
    assert re.search(rf"!\[[^\]]{{20,}}\]\(pictures/{path}\)", (DOCS / "command-line.md").read_text())
