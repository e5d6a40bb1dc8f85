"""The queues that other clients take for a key: vectors are what these clients themselves chose."""

from __future__ import annotations

import pytest

from pyrmq_core import (
    InvalidArgument,
    Message,
    MessageQueue,
    select_like_go,
    select_like_grpc_java,
    select_like_grpc_python,
    select_like_proxy,
)
from pyrmq_core.client.producer.producer import Select
from pyrmq_core.client.producer.selectors import sip_hash

KEYS = ("order-1", "order-2", "order-3", "order-4", "G1", "größe", "中文-7", "a-rather-long-key-of-24by")
# rocketmq-client-go v2.1.3, rocketmq-client-java 5.0.8, rocketmq-python-client 5.1.2: queues of KEYS by their number.
CHOSEN = (
    (select_like_go, {3: (1, 1, 0, 0, 0, 2, 0, 2), 5: (4, 2, 1, 4, 2, 4, 3, 2)}),
    (select_like_grpc_java, {3: (0, 0, 1, 1, 2, 1, 2, 2), 5: (0, 0, 1, 0, 3, 4, 4, 3)}),
    (select_like_grpc_python, {3: (1, 2, 0, 2, 1, 0, 0, 2), 5: (1, 0, 4, 1, 4, 1, 4, 3)}),
)


def test_the_queues_that_a_proxy_chose() -> None:
    """A proxy of 5.4.0 stored these groups in these queues, though the client named others."""
    for group, count, number in (("order-1", 13, 3), ("order-1", 4, 3), ("G1", 4, 0)):
        queues = [MessageQueue("orders", "a", place) for place in range(count)]
        assert select_like_proxy(queues, Message("orders", b"body", sharding_key=group)).queue_id == number


@pytest.mark.parametrize(("select", "chosen"), CHOSEN, ids=lambda value: getattr(value, "__name__", ""))
def test_queues_are_those_of_the_client(select: Select, chosen: dict[int, tuple[int, ...]]) -> None:
    for count, numbers in chosen.items():
        queues = [MessageQueue("orders", "a", number) for number in range(count)]
        messages = [Message("orders", b"body", sharding_key=key) for key in KEYS]
        assert tuple(select(queues, message).queue_id for message in messages) == numbers
    with pytest.raises(InvalidArgument, match="no sharding_key"):
        select(queues, Message("orders", b"body"))


def test_the_vector_of_siphashs_authors() -> None:
    assert sip_hash(bytes(range(15))) == 0xA129CA6149BE45E5
