"""Rows of tables by queue: the fast form against the plain one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.queue_tables import dump_number_row, dump_queue_row

NAMES = st.text(st.characters(), max_size=8) | st.sampled_from(["%RETRY%g", '"\\', "\ud800"])
NUMBERS = st.dictionaries(st.sampled_from(["minOffset", "maxOffset", "lastUpdateTimestamp"]), st.integers(-9, 2**63))


@given(NAMES, NAMES, st.integers(0, 65_535), NUMBERS)
def test_a_row_of_numbers_is_the_plain_row(
    topic: str, broker_name: str, queue_id: int, numbers: dict[str, int]
) -> None:
    plain = dump_queue_row(MessageQueue(topic, broker_name, queue_id), numbers)
    assert dump_number_row(topic, broker_name, queue_id, numbers) == plain
