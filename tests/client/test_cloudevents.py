"""CloudEvents in messages: structured texts are those of cloudevents-core 4.0.1 of Java."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyrmq_core import InvalidArgument
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.cloudevents import CloudEvent, Dialect, event_in, event_message, read_event
from tests.support.stored_messages import awaited

TIME = "2026-11-28T10:11:12.123456789+05:30"
EVENT = CloudEvent(
    "e-1",
    "/shop",
    "order.made",
    time=TIME,
    subject="order-7",
    dataschema="http://s/1",
    extensions={"traceid": "t-1", "amount": "7"},
)
JSON = replace(EVENT, datacontenttype="application/json", data='{"price":12.340,"n":[1,{"a":"中"}]}'.encode())
TEXT = replace(EVENT, datacontenttype="text/plain", data='tea "中"'.encode())
BYTES = replace(EVENT, datacontenttype="application/octet-stream", data=b"\x00\xff")
EVENTS = (EVENT, JSON, TEXT, BYTES)
COMMON = f'"dataschema":"http://s/1","subject":"order-7","time":"{TIME}","traceid":"t-1","amount":7'
BEGIN = '{"specversion":"1.0","id":"e-1","source":"/shop","type":"order.made"'
# By cloudevents-json-jackson, of these events in this order.
JAVA = (
    f"{BEGIN},{COMMON}}}",
    f'{BEGIN},"datacontenttype":"application/json",{COMMON},"data":{{"price":12.340,"n":[1,{{"a":"中"}}]}}}}',
    f'{BEGIN},"datacontenttype":"text/plain",{COMMON},"data_base64":"dGVhICLkuK0i"}}',
    f'{BEGIN},"datacontenttype":"application/octet-stream",{COMMON},"data_base64":"AP8="}}',
)
STRUCTURED = {"CE_contenttype": "application/cloudevents+json"}
DIALECTS: tuple[Dialect, ...] = ("java", "spring", "eventmesh", "structured")


def test_structured_texts_of_java_are_read() -> None:
    assert tuple(event_in(STRUCTURED, text.encode()) for text in JAVA) == EVENTS


def test_a_structured_text_keeps_its_data_whatever_stands_where() -> None:
    text = (
        ' { "data" : { "price" : 1.10 } , "id":"1","source":"s", "type" : "t", "subject":null, "specversion":"1.0" } '
    )
    assert event_in({"contentType": "application/cloudevents+json; charset=UTF-8"}, text.encode()) == CloudEvent(
        "1", "s", "t", data=b'{ "price" : 1.10 }'
    )
    text = (
        '{"data":"tea","datacontenttype":"text/plain","id":"1","source":"s","type":"t","specversion":"1.0","on":true}'
    )
    assert event_in(STRUCTURED, text.encode()) == CloudEvent(
        "1", "s", "t", datacontenttype="text/plain", data=b"tea", extensions={"on": "true"}
    )


def test_properties_of_each_dialect() -> None:
    attributes = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.made", "time": TIME}
    attributes |= {"subject": "order-7", "dataschema": "http://s/1", "contenttype": "application/json"}
    java = {f"CE_{name}": text for name, text in attributes.items()} | {"traceid": "t-1", "amount": "7"}
    assert dict(event_message("orders", JSON).properties) == java
    spring = event_message("orders", JSON, dialect="spring").properties
    assert (spring["ce_id"], spring["contentType"], spring["ce_traceid"]) == ("e-1", "application/json", "t-1")
    mesh = event_message("orders", JSON, dialect="eventmesh").properties
    assert (mesh["id"], mesh["datacontenttype"], mesh["traceid"]) == ("e-1", "application/json", "t-1")
    assert event_message("orders", EVENT).body == b"\0"  # a broker takes no empty body


def test_events_come_back_through_a_broker() -> None:
    with EmbeddedCluster(topics={"orders": 1, "plain": 1}) as cluster:
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            for dialect in DIALECTS:
                for event in EVENTS:
                    producer.send(event_message("orders", event, dialect=dialect, keys="order-7"))
        with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
            messages = awaited(consumer, "orders", len(DIALECTS) * len(EVENTS))
    assert [read_event(message) for message in messages] == [*EVENTS] * len(DIALECTS)
    assert {message.keys for message in messages} == {"order-7"}


def test_what_is_no_event() -> None:
    wrong: Any = "kafka"
    assert event_in({"region": "eu"}, b"body") is None
    for body in (b"", b"[]", b'"x"', b'{"id":"1"', b"\xff", b'{"data_base64":"x y"}'):
        with pytest.raises(InvalidArgument, match="message 7 says that it is a structured event, and is not"):
            event_in(STRUCTURED, body, "message 7")
    with pytest.raises(InvalidArgument, match="the event in the message has no source, type"):
        event_in({"CE_specversion": "1.0", "CE_id": "1"}, b"")
    for event, words in (
        (replace(EVENT, id=""), "no id"),
        (replace(EVENT, extensions={"Trace-Id": "1"}), "'Trace-Id'"),
        (replace(EVENT, extensions={"type": "1"}), "'type'"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            event_message("orders", event)
    with pytest.raises(InvalidArgument, match="is no application/json"):
        event_message("orders", replace(JSON, data=b"{"), dialect="structured")
    with pytest.raises(InvalidArgument, match="dialect='kafka'"):
        event_message("orders", EVENT, dialect=wrong)
