"""Recall: the handle of a delayed message leads to its broker; refusals are raised."""

import pytest

from pyrmq_core import BrokerNotFound, Client, InvalidArgument, Message, Producer, ResponseError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage
from tests.support.scripted import answer, refuse
from tests.support.stage import Stage

RECALL = RequestCode.RECALL_MESSAGE
HANDLE = RecallHandle("orders", "broker-b", 1_900_000_000_000, "ABC").encode()


async def test_the_broker_of_the_handle_is_asked(stage: Stage, client: Client) -> None:
    stage.brokers["broker-b"].always(RECALL, answer(MessageRecalled("ABC").to_command()))
    async with Producer("g", client=client) as producer:
        assert await producer.recall("orders", HANDLE) == "ABC"
    (requested,) = stage.brokers["broker-b"].of(RECALL)
    assert RecallMessage.from_command(requested) == RecallMessage("g", "orders", HANDLE, "broker-b")
    assert stage.brokers["broker-a"].of(RECALL) == []


@pytest.mark.parametrize(
    ("code", "remark", "text"),
    [
        (16, "recall failed, operation is forbidden", r"RECALL_MESSAGE \(370\).*NO_PERMISSION \(16\): recall failed"),
        (604, "recall handle is invalid", r"ILLEGAL_OPERATION \(604\)"),
        (3, " request type 370 not supported", r"REQUEST_CODE_NOT_SUPPORTED \(3\).*the server is older"),
    ],
)
async def test_refusals_are_reported(stage: Stage, client: Client, code: int, remark: str, text: str) -> None:
    stage.brokers["broker-b"].always(RECALL, refuse(code, remark))
    async with Producer("g", client=client) as producer:
        with pytest.raises(ResponseError, match=text) as caught:
            await producer.recall("orders", HANDLE)
    assert caught.value.code == code


async def test_an_invalid_handle_makes_no_request(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(InvalidArgument, match="recall handle is invalid"):
            await producer.recall("orders", "nonsense")
        with pytest.raises(BrokerNotFound, match="gone"):
            await producer.recall("orders", RecallHandle("orders", "gone", 1, "A").encode())
        await producer.send(Message("orders", b"x"))
    assert all(RECALL not in server.codes for server in stage.brokers.values())


async def test_a_tenants_topic_carries_its_namespace(stage: Stage, client: Client) -> None:
    stage.topic("NS%orders")
    stage.brokers["broker-b"].always(RECALL, answer(MessageRecalled("ABC").to_command()))
    async with Producer("g", client=client, namespace="NS") as producer:
        await producer.recall("orders", HANDLE)
    requested = RecallMessage.from_command(stage.brokers["broker-b"].of(RECALL)[0])
    assert (requested.topic, requested.producer_group) == ("NS%orders", "NS%g")
