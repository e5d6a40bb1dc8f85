"""KV configuration: its content, the file whole at every moment, and failed writes."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.nameserver.kv_config import DeleteKvConfig, PutKvConfig
from pyrmq_core.servers.nameserver.kvconfig import KvConfig
from tests.servers.nameserver.desk import Desk

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JAVAS = '{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicTest":"broker-a:4"}}}'


def test_javas_file_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(JAVAS)
    kv = KvConfig(path)
    kv.load()
    assert kv.get("ORDER_TOPIC_CONFIG", "TopicTest") == "broker-a:4"
    assert kv.to_json().decode() == JAVAS


@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=3))
@settings(max_examples=50, deadline=None)
def test_any_table_survives_its_file(table: dict[str, dict[str, str]]) -> None:
    kv = KvConfig()
    for namespace, values in table.items():
        kv.put(namespace, "gone", "x")
        kv.delete(namespace, "gone")
        for key, value in values.items():
            kv.put(namespace, key, value)
    assert json.loads(kv.to_json()) == {"configTable": table}
    assert {namespace: dict(kv.namespace(namespace) or {}) for namespace in table} == table


async def test_each_change_is_on_disk_and_the_content_before_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kvConfig.json"
    desk = Desk(kvConfigPath=path)
    for value in ("1", "2"):
        assert (await desk.ask(PutKvConfig("N", "k", value).to_command())).code == 0
    assert json.loads(path.read_text()) == {"configTable": {"N": {"k": "2"}}}
    assert json.loads(path.with_name("kvConfig.json.bak").read_text()) == {"configTable": {"N": {"k": "1"}}}
    assert (await desk.ask(DeleteKvConfig("N", "k").to_command())).code == 0
    assert json.loads(path.read_text()) == {"configTable": {"N": {}}}
    assert not list(path.parent.glob("*.tmp"))


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("which", [1, 2])
async def test_a_crash_at_any_step_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, which: int
) -> None:
    """The steps write two files, the one beside and the file itself; each is written, synced, and put in place."""
    path = tmp_path / "kvConfig.json"
    desk = Desk(kvConfigPath=path)
    await desk.ask(PutKvConfig("N", "k", "old").to_command())
    real, calls = getattr(os, call), 0

    def crash(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == which:
            raise OSError("the disk is full")
        real(*args)

    monkeypatch.setattr(os, call, crash)
    answer = await desk.ask(PutKvConfig("N", "k", "new").to_command())
    assert answer.code == 1
    assert "changed in memory only" in (answer.remark or "")
    assert "the disk is full" in (answer.remark or "")
    assert json.loads(path.read_text()) == {"configTable": {"N": {"k": "old"}}}
    monkeypatch.undo()
    await desk.server.kv.save()
    assert json.loads(path.read_text()) == {"configTable": {"N": {"k": "new"}}}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"configTable":[1]}', '{"configTable":{"N":7}}', "\udcff"])
async def test_a_file_that_is_none_is_reported_and_kept_beside(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError, match=r"kvConfig\.json"):
        KvConfig(path).load()
    desk = Desk(kvConfigPath=path)
    desk.server.load()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    await desk.ask(PutKvConfig("N", "k", "v").to_command())
    kept = path.with_name("kvConfig.json.bak").read_bytes()
    assert kept == content.encode("utf-8", "surrogateescape")


async def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    desk = Desk()  # port 0
    assert desk.server.kv.path is None
    assert (await desk.ask(PutKvConfig("N", "k", "v").to_command())).code == 0
    assert (await desk.ask(Command(318, body=b"orderMessageEnable=true\n"))).code == 0
    assert os.listdir(tmp_path) == []


async def test_a_round_logs_every_value(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    await desk.ask(PutKvConfig("N", "k", "v").to_command())
    await desk.server.log_kv()
    assert [record.getMessage() for record in caplog.records] == ["KV configuration N: k = v"]
