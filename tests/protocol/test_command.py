"""Commands: answers and their requests, and the text of a refusal."""

from __future__ import annotations

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode, request_name, response_name
from pyrmq_core.protocol.framing.command import Command, Serialization, refusal, success
from pyrmq_core.protocol.framing.header_requests import response_error


def test_an_answer_takes_the_number_and_the_encoding_of_its_request() -> None:
    request = Command(105, {"topic": "T"}, opaque=7, serialization=Serialization.ROCKETMQ)
    answer = request.answered(success({"a": "b"}, b"body"))
    assert answer.opaque == 7
    assert answer.is_response
    assert not answer.is_oneway
    assert answer.serialization is Serialization.ROCKETMQ
    assert (answer.code, answer.ext, answer.body) == (0, {"a": "b"}, b"body")


def test_one_way_is_a_bit() -> None:
    request = Command(15).oneway()
    assert request.is_oneway
    assert not request.is_response
    assert request.flag == 2


def test_codes_are_named() -> None:
    assert request_name(105) == "GET_ROUTEINFO_BY_TOPIC (105)"
    assert request_name(4711) == "4711"
    assert response_name(17) == "TOPIC_NOT_EXIST (17)"
    assert response_name(4711) == "4711"


def test_a_refusal_names_peer_request_reason_and_remedy() -> None:
    answer = refusal(ResponseCode.TOPIC_NOT_EXIST, " topic[T] not exist\n")
    error = response_error(answer, RequestCode.SEND_MESSAGE_V2, "127.0.0.1:10911", "topic T")
    assert (error.code, error.remark, error.address) == (17, "topic[T] not exist", "127.0.0.1:10911")
    assert str(error) == (
        "127.0.0.1:10911 answered SEND_MESSAGE_V2 (310) for topic T with TOPIC_NOT_EXIST (17): topic[T] not exist; "
        "create the topic, or switch on autoCreateTopicEnable at the broker"
    )


def test_a_bare_refusal_is_one_line_too() -> None:
    error = response_error(Command(4711), 12, "b:1")
    assert str(error) == "b:1 answered QUERY_MESSAGE (12) with 4711"


def test_a_broker_that_is_taken_for_a_nameserver_is_called_a_broker() -> None:
    answer = Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type 105 not supported")
    route = response_error(answer, RequestCode.GET_ROUTEINFO_BY_TOPIC, "127.0.0.1:10911", "topic T")
    assert str(route).endswith("name a NameServer's address, whose port is 9876 by default")
    assert "is older than this request" in str(response_error(answer, RequestCode.LITE_PULL_MESSAGE, "127.0.0.1:10911"))
    assert "needs a broker of 5.0 or later" in str(response_error(answer, RequestCode.POP_MESSAGE, "127.0.0.1:10911"))
