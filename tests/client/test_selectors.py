"""The queues that other programs take for a key: vectors are what these programs themselves chose."""

from __future__ import annotations

import pytest

from pyrmq_core import InvalidArgument, Message, MessageQueue, select_like_go, select_like_proxy
from pyrmq_core.client.producer.producer import Select

KEYS = ("order-1", "order-2", "order-3", "order-4", "G1", "größe", "中文-7", "a-rather-long-key-of-24by")
# rocketmq-client-go v2.1.3, and a proxy of 5.4.0 for rocketmq-python-client 5.1.2: queues of KEYS by their number.
CHOSEN = (
    (select_like_go, {3: (1, 1, 0, 0, 0, 2, 0, 2), 5: (4, 2, 1, 4, 2, 4, 3, 2)}),
    (select_like_proxy, {3: (0, 2, 1, 2, 0, 0, 2, 2), 5: (3, 2, 3, 2, 0, 4, 2, 3)}),
)


@pytest.mark.parametrize(("select", "chosen"), CHOSEN, ids=lambda value: getattr(value, "__name__", ""))
def test_queues_are_those_of_the_client(select: Select, chosen: dict[int, tuple[int, ...]]) -> None:
    for count, numbers in chosen.items():
        queues = [MessageQueue("orders", "a", number) for number in range(count)]
        messages = [Message("orders", b"body", sharding_key=key) for key in KEYS]
        assert tuple(select(queues, message).queue_id for message in messages) == numbers
    with pytest.raises(InvalidArgument, match="no sharding_key"):
        select(queues, Message("orders", b"body"))
