"""Topic configurations and data versions: Java's JSON both ways, and invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion, TopicConfigTable
from tests.protocol.test_registration import CONFIGS, NUMBERS

VERSIONS = st.builds(DataVersion, NUMBERS, NUMBERS, NUMBERS)


@given(VERSIONS, st.lists(CONFIGS, max_size=4))
def test_a_table_survives(version: DataVersion, configs: list[TopicConfig]) -> None:
    table = TopicConfigTable.of(version, configs)
    assert TopicConfigTable.from_json(table.to_json()) == table


def test_javas_text_of_a_version() -> None:
    assert DataVersion(1_700_000_000_000, 3).to_json() == b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    assert DataVersion.from_json(b'{"counter":1,"timestamp":5}') == DataVersion(5, 1, 0)


def test_the_next_version_counts_on_and_keeps_the_state() -> None:
    assert DataVersion(5, 1, 7).next(9) == DataVersion(9, 2, 7)
    assert NO_VERSION.next(0) != NO_VERSION


@pytest.mark.parametrize("body", [b"", b"7", b"[]", b'{"counter":"x"}', b'{"timestamp":{}}', b'{"counter":1e999}'])
def test_what_is_no_version_is_named(body: bytes) -> None:
    with pytest.raises(BodyError):
        DataVersion.from_json(body)


@pytest.mark.parametrize(
    "body", [b"[]", b'{"topicConfigTable":[1]}', b'{"topicConfigTable":{"T":{}}}', b'{"dataVersion":[1]}']
)
def test_what_is_no_table_is_named(body: bytes) -> None:
    with pytest.raises(BodyError):
        TopicConfigTable.from_json(body)
