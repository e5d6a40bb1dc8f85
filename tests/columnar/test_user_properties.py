"""Maps whose rows have equal names are sent like those whose rows differ, wherever they begin in their arrays."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import Message
from pyrmq_core.columnar import encode_batches, first_fault
from pyrmq_core.columnar.encoding.encode import BREAK_EVEN_ROWS
from pyrmq_core.columnar.encoding.user_properties import STRING_MAP, UserProperties
from pyrmq_core.protocol.messages.batch_payloads import encode_batch
from tests.protocol.strategies import NAMES, PLAIN

MANY = 2 * BREAK_EVEN_ROWS


def maps(*rows: dict[str, str] | None) -> pa.Array:
    return pa.array([None if row is None else list(row.items()) for row in rows], STRING_MAP)


def names_of(*rows: dict[str, str] | None) -> tuple[str, ...] | None:
    return UserProperties.of(maps(*rows)).names


@given(
    st.lists(NAMES, min_size=1, max_size=5, unique=True),
    st.lists(PLAIN, min_size=5, max_size=5),
    st.integers(0, 3),
    st.sampled_from(["same", "one more", "one less", "other name", "other order"]),
)
def test_the_bytes_of_the_same_messages(names: list[str], values: list[str], skipped: int, last: str) -> None:
    same = dict(zip(names, values, strict=False))
    odd = {
        "same": same,
        "one more": same | {"one-more": "1"},
        "one less": dict(list(same.items())[1:]),
        "other name": dict(list(same.items())[1:]) | {names[0][:-1] + "~": values[0]},
        "other order": dict(reversed(same.items())),
    }[last]
    rows = [{name: f"{value}{row}" for name, value in same.items()} for row in range(MANY)] + [odd]
    batch = pa.record_batch({"body": pa.array([b"x"] * len(rows)), "properties": maps(*rows)}).slice(skipped)
    ids = [f"ID{row}" for row in range(batch.num_rows)]
    messages = [Message("orders", b"x", properties=row) for row in rows[skipped:]]
    sent = b"".join(bytes(payload.body) for payload in encode_batches(batch, "orders", lambda _: ids))
    assert sent == bytes(encode_batch(messages, ids).body)


def test_same_names_are_seen() -> None:
    assert names_of({"a": "1", "b": ""}, {"a": "2", "b": "3"}) == ("a", "b")
    assert names_of({"a": "1", "b": "2"}, {"b": "1", "a": "2"}) is None
    assert names_of({"ab": "1", "c": "2"}, {"a": "1", "bc": "2"}) is None
    assert names_of({"a": "1"}, {"a": "1", "b": "2"}) is None
    assert names_of({"a": "1"}, None) is None
    assert names_of({}, {}) is None
    assert names_of() is None


@pytest.mark.parametrize("name", ["UNIQ_KEY", "a\x01b", ""])
def test_a_wrong_name_in_every_row_is_reported_for_the_first(name: str) -> None:
    properties = maps(*[{"a": "1", name: "2"}] * MANY).slice(3)
    fault = first_fault(pa.record_batch({"body": pa.array([b"x"] * len(properties)), "properties": properties}))
    assert fault is not None
    assert (fault.row, fault.column) == (0, "properties")


def test_a_wrong_value_in_one_row_is_reported_for_it() -> None:
    rows = [{"a": "1", "b": "2"}] * MANY
    rows[20] = {"a": "1", "b": "\x02"}
    fault = first_fault(pa.record_batch({"body": pa.array([b"x"] * MANY), "properties": maps(*rows)}))
    assert fault is not None
    assert (fault.row, fault.column) == (20, "properties")
