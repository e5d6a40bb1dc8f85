"""`pyrmq export` and `pyrmq import`: what is read back equals what was there, and a file is whole or not there."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio

from pyrmq_core import InvalidArgument, Message, MessageExt, OffsetRange, TopicPublishInfo, decode
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.columnar.parquet import read_rows
from pyrmq_core.testing import PASS, Command, CutConnection, Peer, RequestCode
from tests.support.commands import ended, started
from tests.support.terminal import Terminal
from tests.support.waiting import until_readable

BODIES = (
    b"plain",
    '{"a": "h\u00e9llo, \\"q\\"", "n": 9007199254740993}'.encode(),
    b"\xff\xfe\x00 no text",
    b'two\nlines\r\nand, "quotes"',
    b"x" * 10_000,
    b" ",
    b"=1+1",
    "\u2028\u0007\u00a0".encode(),
)
COUNT = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with two queues each of T, and topics to import into: of as many queues, and of one."""
    topics = {"T": 2, "One": 1, "Empty": 1}
    for form in ("jsonl", "parquet", "csv"):
        topics |= {f"Copy-{form}": 2, f"Lite-{form}": 2, f"Lite-copy-{form}": 1}
    with EmbeddedCluster(brokers=2, topics=topics) as cluster:
        with Producer("G", nameserver=cluster.nameserver) as producer:
            queues = producer.message_queues("T")
            for number in range(COUNT):
                message = Message(
                    "T",
                    BODIES[number % len(BODIES)],
                    tags="even" if number % 2 == 0 else None,
                    keys=["k", f"k{number}"] if number % 3 == 0 else None,
                    sharding_key=f"s{number}" if number % 5 == 0 else None,
                    properties={"n": str(number), "a b": "c=d, \u00e9"},
                    flag=number % 7,
                )
                producer.send(message, queue=queues[number % 3])  # one queue stays empty
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


def held(cluster: EmbeddedCluster, topic: str) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """Returns what each queue holds, in its order."""
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        content: dict[tuple[str, int], list[tuple[object, ...]]] = {}
        for queue in consumer.message_queues(topic):
            with consumer.read(queue, consumer.min_offset(queue), consumer.max_offset(queue)) as pulls:
                messages = [m for pull in pulls for m in decode(pull, OffsetRange(pull.start, pull.next_offset))]
            content[queue.broker_name, queue.queue_id] = [sendable(message) for message in messages]
        return content


def sendable(message: MessageExt) -> tuple[object, ...]:
    properties = tuple(sorted(message.user_properties.items()))
    return message.body, message.tags, message.keys, message.sharding_key, properties, message.flag


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_a_round_trip_is_equal(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"orders.{form}"
    wrote = terminal.text("export", "T", "--since", "1h", "--format", form, "--to", str(target))
    assert wrote == f"{COUNT} messages of T are in {target}\n"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    read = terminal.text("import", str(target), "--topic", f"Copy-{form}")
    assert read == f"{COUNT} messages of {target} are stored in Copy-{form}\n"
    assert held(cluster, f"Copy-{form}") == held(cluster, "T")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_messages_of_lite_topics_go_to_the_brokers_of_their_names(
    cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path, form: str
) -> None:
    topic, copies = f"Lite-{form}", f"Lite-copy-{form}"
    names = [f"session-{number}" for number in range(8)]
    with Producer("G", nameserver=cluster.nameserver, send_timeout=60) as producer:
        for name in names:
            producer.send(Message(topic, b"x", lite_topic=name))
        places = TopicPublishInfo(copies, producer.message_queues(copies), counter_start=0)
    target = str(tmp_path / form)
    trio.run(until_readable, cluster.nameserver, topic, len(names))
    terminal.text("export", topic, "--since", "1h", "--format", form, "--to", target)
    terminal.text("import", target, "--topic", copies, "--format", form)
    trio.run(until_readable, cluster.nameserver, copies, len(names))
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        there = {
            message.properties["__LITE_TOPIC"]: queue
            for queue in places.queues
            for message in consumer.pull(queue, 0).messages
        }
    assert there == {name: places.queue_of_key(name, is_lite=True) for name in names}


def test_fewer_queues_keep_the_order_of_each(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "orders"
    terminal.text("export", "T", "--since", "1h", "--format", "jsonl", "--to", str(target))
    terminal.text("import", str(target), "--topic", "One", "--format", "jsonl")
    (first, second) = held(cluster, "One").values()
    for queue, messages in held(cluster, "T").items():
        assert messages == [row for row in (*first, *second) if row in messages], queue


def test_other_programs_read_the_files(terminal: Terminal, tmp_path: Path) -> None:
    for form in ("jsonl", "parquet", "csv"):
        terminal.text("export", "T", "--since", "1h", "--format", form, "--to", str(tmp_path / form), "--tags", "even")
    lines = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    with (tmp_path / "csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "parquet").to_pylist()
    assert len(lines) == len(rows) == len(table) == COUNT // 2
    for line, row, columns in zip(lines, rows, table, strict=True):
        assert (
            (line["queueOffset"], line["tags"])
            == (columns["queueOffset"], "even")
            == (int(row["queueOffset"]), row["tags"])
        )
        assert line["body"] == row["body"] == columns["body"].decode(errors="replace")


def test_cells_that_a_spreadsheet_would_compute_are_quoted_on_request(terminal: Terminal, tmp_path: Path) -> None:
    rows = {}
    for name, *options in (("plain",), ("quoted", "--quote-formulas")):
        target = str(tmp_path / name)
        terminal.text("export", "T", "--since", "1h", "--format", "csv", "--to", target, *options)
        with open(target, newline="") as file:
            rows[name] = list(csv.DictReader(file))
    assert {row["body"] for row in rows["plain"]} >= {"=1+1", "plain"}
    assert {row["body"] for row in rows["quoted"]} >= {"'=1+1", "plain"}
    assert [{**row, "body": row["body"].removeprefix("'")} for row in rows["quoted"]] == rows["plain"]
    refused = ("--format", "jsonl", "--to", str(tmp_path / "x"), "--quote-formulas")
    assert terminal.run("export", "T", "--since", "1h", *refused).exit_code == 2


def test_nothing_is_a_whole_file_too(terminal: Terminal, tmp_path: Path) -> None:
    for form in ("jsonl", "parquet", "csv"):
        target = str(tmp_path / f"none.{form}")
        assert "0 messages of Empty" in terminal.text(
            "export", "Empty", "--since", "1h", "--format", form, "--to", target
        )
        assert "0 messages of" in terminal.text("import", target, "--topic", "Empty")


def test_a_file_that_is_there_stays(terminal: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "orders.jsonl"
    target.write_text("mine")
    options = ("export", "Empty", "--since", "1h", "--format", "jsonl", "--to")
    assert "--overwrite replaces it" in " ".join(terminal.run(*options, str(target)).stderr.split())
    assert target.read_text() == "mine"
    assert "it is no file" in " ".join(terminal.run(*options, os.devnull, "--overwrite").stderr.split())
    terminal.text(*options, str(target), "--overwrite")
    assert target.read_text() == ""


def test_a_file_that_comes_meanwhile_stays(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "orders.jsonl"

    async def another_writes(request: Command, peer: Peer) -> object:
        target.write_text("another's")
        return PASS

    cluster.control(RequestCode.PULL_MESSAGE, another_writes, times=1)  # type: ignore[arg-type]
    result = terminal.run("export", "T", "--since", "1h", "--format", "jsonl", "--to", str(target))
    assert result.exit_code == 1
    assert "it has come meanwhile, and stays" in " ".join(result.stderr.split())
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("orders.jsonl", "another's")]


def test_an_unfinished_file_of_another_stays(terminal: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "orders.jsonl"
    part = tmp_path / f"orders.jsonl.{os.getpid()}.part"
    part.write_text("another's")
    result = terminal.run("export", "T", "--since", "1h", "--format", "jsonl", "--to", str(target))
    assert result.exit_code == 1
    named, failed = result.stderr.splitlines()
    assert named == f"{part} is the unfinished file of another export; remove it if that runs no more"
    assert f"{part}: File exists, after 0 messages" in failed
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(part.name, "another's")]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_a_disk_that_is_full(terminal: Terminal, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files fails as a full disk does."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would cut the file of a module that it compiles
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        result = terminal.run("export", "T", "--since", "1h", "--format", form, "--to", str(tmp_path / "orders"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1
    assert "File too large" in result.stderr
    (said,) = result.stderr.splitlines()
    assert "it is not written" in said
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_goes_away_leaves_no_file(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    target = tmp_path / "orders.jsonl"
    rule = cluster.control(RequestCode.PULL_MESSAGE, cut, server="broker-b")
    try:
        options = ("--format", "jsonl", "--to", str(target), "--timeout", "1")
        said = terminal.refused(1, "export", "T", "--since", "1h", *options)
    finally:
        rule.remove()
    assert cluster.brokers["broker-b"] in said
    assert f"messages were read; {target} is not written)" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.jsonl",
            b'{"body": "a"}\n{"body": 5}\n',
            "body is 5; it has to be a text (a.jsonl, row 2; 0 messages are stored",
        ),
        ("a.csv", b"body,flag\nx,many\n", "invalid literal"),
        (
            "a.csv",
            b"topic,body,bodyBase64\nT,a,\nT,cut",
            "as many values as the head has names; is the file cut? (a.csv, row 2",
        ),
        ("a.csv", b"body\nx,y\n", "as many values as the head has names"),
        ("a.csv", b'body\n"cut', "unexpected end of data (a.csv, row 1"),
        ("a.jsonl", b'{"body": "a"}\n{"body": "cu', "char 9)) (a.jsonl, row 2; 0 messages are stored"),
        ("a.jsonl", b"\x1f\x8b\x08\x00", "it is no JSON ('utf-8' codec"),
        ("a.parquet", b"PAR1 cut", "a.parquet cannot be read as Parquet"),
        ("a.parquet", b"no parquet at all", "a.parquet cannot be read as Parquet"),
        ("a.txt", b"", "does not end with a format"),
    ],
)
def test_files_that_cannot_be_read(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    result = terminal.run("import", name, "--topic", "Empty")
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.stderr.split())


TEXTS = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.array([b"a", None])}, "column body is null; it has to be bytes or a text (a.parquet, row 2;"),
        ({"body": [1.5]}, "column body is 1.5 (float); it has to be bytes or a text (a.parquet, row 1;"),
        ({"body": ["a"], "tags": [7]}, "column tags is 7 (int); it has to be a text"),
        ({"body": ["a"], "keys": [[1]]}, "column keys is [1] (list); it has to be a text"),
        ({"body": ["a"], "flag": ["x"]}, "column flag is 'x' (str); it has to be a whole number"),
        ({"body": ["a", "b"], "properties": [None, "text"]}, "column properties is 'text' (str); it has to be a map"),
        ({"body": ["a"], "properties": [3]}, "column properties is 3 (int); it has to be a map of texts to texts"),
        (
            {"body": ["a"], "properties": pa.array([[("n", 1)]], pa.map_(pa.string(), pa.int64()))},
            "column properties is [('n', 1)] (list); it has to be a map of texts to texts",
        ),
        ({"body": ["a"], "properties": pa.array([[("n", None)]], TEXTS)}, "column properties is [('n', None)]"),
        ({"body": ["a", ""]}, "brokers refuse empty bodies (a.parquet, row 2; 0 messages are stored"),
        ({"body": ["a"], "properties": pa.array([[("TAGS", "x")]], TEXTS)}, "(a.parquet, row 1;"),
        ({"text": ["a"]}, "a.parquet has no column body; it has text"),
    ],
)
def test_rows_of_other_programs_that_are_no_messages(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(columns), "a.parquet")
    shown = terminal.refused(1, "import", "a.parquet", "--topic", "Empty")
    assert said in shown
    assert "Traceback" not in shown


def test_rows_of_other_programs(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    """Texts as bodies, a list of keys, lines with blanks between them and a byte-order mark before the first."""
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Foreign", queues=1)
    table = {"body": ["a", "\u00e9"], "keys": [["k", "l"], None], "tags": pa.array([None, None], pa.null())}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf\r\n{"body": "c"}\r\n\n  \n {"body": "d", "tags": "t"} \n\n')
    for form in ("parquet", "jsonl"):
        assert "2 messages of" in terminal.text("import", str(tmp_path / f"a.{form}"), "--topic", "Foreign")
    rows = sorted(row[:3] for messages in held(cluster, "Foreign").values() for row in messages)
    assert [(body, keys) for body, _, keys in rows] == [(b"a", "k l"), (b"c", None), (b"d", None), (b"\xc3\xa9", None)]


def test_a_lite_topic_may_be_a_property(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    """Files of an export that had no column for it are like this."""
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Earlier", queues=1)
    properties = pa.array([[("__LITE_TOPIC", "session-1"), ("n", "7")]], TEXTS)
    pq.write_table(pa.table({"body": ["a"], "properties": properties}), tmp_path / "a.parquet")
    terminal.text("import", str(tmp_path / "a.parquet"), "--topic", "Earlier")
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        pulled = [consumer.pull(queue, 0).messages for queue in consumer.message_queues("Earlier")]
    (message,) = [message for messages in pulled for message in messages]
    assert (message.properties["__LITE_TOPIC"], message.properties["n"]) == ("session-1", "7")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_an_import_goes_on_behind_rows(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path, form: str) -> None:
    """Both halves of a file, the first row of the second marked as skipped, are the file; also in other queues."""
    source, topic = str(tmp_path / f"a.{form}"), f"Skip-{form}"
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(topic, queues=1)
    terminal.text("export", "T", "--since", "1h", "--format", form, "--to", source)
    whole = terminal.text("import", source, "--topic", topic, "--skip", "0")
    assert whole.startswith(f"{COUNT} messages of")
    first = held(cluster, topic)
    assert terminal.text("import", source, "--topic", topic, "--skip", "150").startswith(f"{COUNT - 150} messages of")
    again = {queue: rows[len(first[queue]) :] for queue, rows in held(cluster, topic).items()}
    assert sum(map(len, again.values())) == COUNT - 150
    for queue, rows in again.items():
        assert rows == first[queue][len(first[queue]) - len(rows) :]
    assert terminal.text("import", source, "--topic", topic, "--skip", str(COUNT + 5)).startswith("0 messages of")


def test_a_row_behind_skipped_rows_is_named_by_its_number(terminal: Terminal, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('no JSON\n\n{"body": "a"}\n{"body": 5}\n')
    said = terminal.refused(1, "import", str(source), "--topic", "Empty", "--skip", "1")
    assert "row 3; 0 messages are stored, all before row 2 (--skip 1 begins there)" in said
    source.write_bytes(b"[" * 100_000 + b"\n")
    assert "it is no JSON (" in terminal.refused(1, "import", str(source), "--topic", "Empty")
    cells = tmp_path / "a.csv"
    cells.write_text(f"body,properties\na,{'[' * 100_000}\n")
    assert "column properties is '[[[" in terminal.refused(1, "import", str(cells), "--topic", "Empty")
    cells.write_text(f"body,flag\na,{'9' * 5000}\n")
    assert "column flag is '999" in terminal.refused(1, "import", str(cells), "--topic", "Empty")


def test_equal_bodies_are_unpacked_row_by_row(tmp_path: Path) -> None:
    """A small file of large bodies: 200 MiB of them lie in its only row group, once."""
    body = b"a" * (4 * 1024 * 1024)
    pq.write_table(pa.table({"body": [body] * 50, "tags": ["t"] * 50}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1024 * 1024
    before = pa.total_allocated_bytes()
    with (tmp_path / "a.parquet").open("rb") as file:
        for row in read_rows(file, "a.parquet"):
            assert row == {"body": body, "tags": "t"}
            assert pa.total_allocated_bytes() - before < 32 * 1024 * 1024


def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": [b"a body"] * 50}), path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 16 + content[20:])
    with path.open("rb") as file, pytest.raises(InvalidArgument, match=r"a\.parquet cannot be read as Parquet"):
        list(read_rows(file, "a.parquet"))


def test_the_mark_of_a_spreadsheet_is_no_name(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "marked.csv"
    file.write_bytes("\ufeffbody,tags\r\n\ufeffa,b\r\n".encode())
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Marked", queues=1)
    assert "1 messages of" in terminal.text("import", str(file), "--topic", "Marked")
    (message,) = (message for messages in held(cluster, "Marked").values() for message in messages)
    assert message[:2] == ("\ufeffa".encode(), "b")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_an_interrupted_export_says_that_nothing_is_written(
    cluster: EmbeddedCluster, tmp_path: Path, form: str
) -> None:
    async def never(request: Command, peer: Peer) -> None:
        process.send_signal(signal.SIGINT)

    options = ("--since", "1h", "--format", form, "--to", "orders", "-n", cluster.nameserver)
    rule = cluster.control(RequestCode.PULL_MESSAGE, never, times=1)
    try:
        process = started("export", "T", *options, home=tmp_path)
        status, output, errors = ended(process)
    finally:
        rule.remove()
    assert (status, output) == (130, "")
    (said,) = errors
    assert re.fullmatch(r"interrupted: \d+ messages were read; orders is not written", said)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_send_says_what_is_stored(cluster: EmbeddedCluster, terminal: Terminal, tmp_path: Path) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("Two", queues=1)
    file = tmp_path / "two.jsonl"
    rows = [{"body": f"{n}", "brokerName": f"broker-{'ab'[n % 2]}", "queueId": 0} for n in range(10)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    rules = [cluster.control(code, cut, server="broker-b") for code in (RequestCode.SEND_BATCH_MESSAGE,)]
    try:
        said = terminal.refused(1, "import", str(file), "--topic", "Two")
    finally:
        for rule in rules:
            rule.remove()
    assert f"{file}, rows 1 to 10: " in said
    assert "5 messages are stored, 5 of these rows are not, some of them perhaps stored" in said
    assert [len(rows) for rows in held(cluster, "Two").values()] == [5, 0]


def test_parquet_names_its_extra(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    target = str(tmp_path / "orders.parquet")
    said = terminal.refused(1, "export", "T", "--since", "1h", "--format", "parquet", "--to", target)
    assert 'pip install "pyrmq-spark[arrow]"' in said
    assert list(tmp_path.iterdir()) == []
