"""The file of offsets: as Java writes it, every way a queue may be written, and files that are damaged."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.client.consumer.offsets.offset_file import dump_offset_file, load_offset_file
from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.queue_tables import dump_queue_table
from tests.protocol.strategies import INT64, TEXT
from tests.support.golden import text

A0 = MessageQueue("orders", "broker-a", 0)
# As tests/golden/README.md names them, in the order of the file.
OF_JAVA = {
    MessageQueue('Ns%Töpic"\\\t', "broker b", 3): 0,
    MessageQueue("TopicA", "broker-a", 1): 2**63 - 1,
    MessageQueue("TopicA", "broker-a", 0): 2,
}
QUEUES = st.builds(MessageQueue, TEXT, TEXT, st.integers(-1, 2**31 - 1))
TABLES = st.dictionaries(QUEUES, INT64, max_size=6)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_javas_file_is_read(version: str) -> None:
    assert load_offset_file(text(f"local_offsets_{version}.json").encode(), "the file") == OF_JAVA


def test_the_file_is_written_as_java_writes_it() -> None:
    assert dump_offset_file(OF_JAVA).decode() == text("local_offsets_5.4.0.json")
    assert dump_offset_file({}) == b'{\n\t"offsetTable":{}\n}'


@given(TABLES)
def test_lines_and_the_form_on_one_line_are_read_back(table: dict[MessageQueue, int]) -> None:
    assert load_offset_file(dump_offset_file(table), "the file") == table
    one_line = b'{"offsetTable":' + dump_queue_table(table) + b"}"
    assert load_offset_file(one_line, "the file") == table


@given(QUEUES, INT64)
def test_a_key_may_be_a_text_of_json(queue: MessageQueue, offset: int) -> None:
    key = json.dumps({"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id})
    assert load_offset_file(json.dumps({"offsetTable": {key: offset}}).encode(), "the file") == {queue: offset}


def test_a_key_may_be_javas_to_string() -> None:
    key = "MessageQueue [topic=%RETRY%orders, brokerName=a, queueId=1, queueId=7]"
    offsets = load_offset_file(json.dumps({"offsetTable": {key: 5}}).encode(), "the file")
    assert offsets == {MessageQueue("%RETRY%orders", "a, queueId=1", 7): 5}


def test_a_file_without_a_table_is_empty() -> None:
    assert load_offset_file(b'{"other":1}', "the file") == {}
    assert load_offset_file(b'{"offsetTable":null}', "the file") == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"offsetTable":[1]}',
        b'{"offsetTable":{"orders":1}}',
        b'{"offsetTable":{"[1]":1}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b"}:1}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":2147483648}:1}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:9223372036854775808}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:{}}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:1}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}1}}',
        b'{"offsetTable":"\xff"}',
        b"{" * 100,
    ],
)
def test_a_damaged_file_is_named(body: bytes) -> None:
    with pytest.raises(BodyError, match="the file"):
        load_offset_file(body, "the file")


@given(st.text('{}[]":,\\x1 \n', max_size=80))
def test_any_text_is_read_or_named(body: str) -> None:
    with contextlib.suppress(BodyError):
        assert load_offset_file(body.encode(), "the file") == {}


@given(TABLES.filter(bool), st.data())
def test_a_file_cut_anywhere_is_named(table: dict[MessageQueue, int], data: st.DataObject) -> None:
    body = dump_offset_file(table)
    with pytest.raises(BodyError):
        load_offset_file(body[: data.draw(st.integers(0, len(body) - 1))], "the file")
