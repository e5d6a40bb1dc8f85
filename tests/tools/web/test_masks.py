"""Masks: what they hide of a body and its properties, from pages, downloads and searches."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyrmq_core import Admin, InvalidArgument, Message, MessageExt, Producer, PullConsumer
from pyrmq_core.tools.search.conditions import LongJson, condition_of
from pyrmq_core.tools.web.masks import MAX_JSON_BYTES, MaskedCondition, Masks
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import changed, served

SECRET = "4111222233334444"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcé*"), inner, max_size=3),
    max_leaves=12,
)
ENCODINGS = ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be", "utf-32-le"]


def expected(value: Any, names: tuple[str, ...], path: tuple[str, ...] = ()) -> Any:
    """Returns a JSON value with the members at `names` masked, by way of its tree."""
    if len(path) == len(names) and all(own in ("*", name) for own, name in zip(names, path, strict=True)):
        return "***"
    if isinstance(value, list):
        return [expected(item, names, path) for item in value]
    if isinstance(value, dict):
        return {name: expected(item, names, (*path, name)) for name, item in value.items()}
    return value


@given(
    value=st.dictionaries(st.sampled_from("abcé"), JSON, max_size=3) | st.lists(JSON, max_size=3),
    names=st.lists(st.sampled_from("abcé*"), min_size=1, max_size=3).map(tuple),
    indent=st.sampled_from([None, 1]),
    escaped=st.booleans(),
)
@example(value={"a": [{"b": 1}, 2], "b": {"a": 3}}, names=("a",), indent=None, escaped=False)
@example(value={"b": {"a": [1], "é": None}, "c": [{"b": 1}]}, names=("*", "a"), indent=1, escaped=True)
def test_members_are_masked_wherever_their_path_is(
    value: Any, names: tuple[str, ...], indent: int | None, escaped: bool
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    masked = Masks.parse([".".join(("json", *names))]).body(body)
    assert json.loads(masked) == expected(value, names)


@pytest.mark.parametrize("end", range(1, len(SECRET) + 40))
def test_the_beginning_of_a_body_is_masked_too(end: int) -> None:
    body = b'{"order": 1, "card": {"pan": "%s"}}' % SECRET.encode()
    assert b"4" not in Masks.parse(["json.card"]).body(body[:end])


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1 "card":"%s"}',
        b'{card:"%s"}',
        b"{'card':'%s'}",
        b'{"c\\u0061rd":"%s"}',
        b'\xef\xbb\xbf {"card":"%s"}',
        b'{"x":"\xff","card":"%s"}',
        b'[{"card":[{"deep":"%s"}]}]',
        b'}]}{"card":"%s"',
        b'{"card":{"a":"}","b":"%s"}}',
    ],
)
def test_what_is_nearly_json_is_masked(body: bytes) -> None:
    if body.startswith(b"}"):
        body = b"{" + body
    assert SECRET.encode() not in Masks.parse(["json.card"]).body(body % SECRET.encode())


@pytest.mark.parametrize("encoding", ENCODINGS[1:])
def test_json_of_another_encoding_is_masked_whole(encoding: str) -> None:
    assert Masks.parse(["json.card"]).body('{"x": 1}'.encode(encoding)) == b"***"


@given(st.text(" \t\r\n\x00\x1e\ufeff", max_size=40), st.sampled_from(ENCODINGS), st.sampled_from(["{", "[{"]))
@example(" " * 16, "utf-8", "{")
@example("\n" * 8, "utf-16-le", "{")
@example("\n" * 8, "utf-16-be", "[{")
@example("\ufeff" + " " * 13, "utf-8", "{")
@example(" " * 10_000, "utf-8", "{")
def test_json_behind_whatever_blanks_is_masked(blanks: str, encoding: str, opening: str) -> None:
    body = f'{blanks}{opening}"card": "{SECRET}"'.encode(encoding)
    assert SECRET.encode(encoding) not in Masks.parse(["json.card"]).body(body)


def test_long_json_is_masked_whole_and_counted_as_not_read() -> None:
    long = b'{"order": "%s"}' % (b"x" * MAX_JSON_BYTES)
    masks = Masks.parse(["json.card"])
    assert masks.body(long) == b"***"
    message = MessageExt("T", "broker-a", 0, 0, long, {}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")
    with pytest.raises(LongJson):
        MaskedCondition(masks, condition_of("order", None, None)).holds(message)
    assert MaskedCondition(masks, condition_of("order", None, None)).holds(replace(message, body=long[:100]))


def test_other_bodies_stay_as_they_are() -> None:
    masks = Masks.parse(["json.card"])
    for body in (b"", b"card: 4111", b"\x00\x01\x02", b" " * (1 << 24), b'{"cards": 1}', b'"card"'):
        assert masks.body(body) is body


@pytest.mark.parametrize(
    "text", ["", "json", "json.", "json..a", "body.a", "properties", "properties.", "properties.TAGS", "card"]
)
def test_a_mask_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not json\.NAME"):
        Masks.parse([text])


async def test_no_page_tells_what_is_masked() -> None:
    body = b'{"order": 7, "card": {"pan": "%s"}, "filler": "%s"}' % (SECRET.encode(), b"x" * 3000)
    async with served(topics={"orders": 1}, masks=["json.card.*", "properties.token"]) as at:
        async with Producer("shop", nameserver=at.cluster.nameserver) as producer:
            sent = await producer.send(Message("orders", body, keys="k1", properties={"token": SECRET, "kind": "paid"}))
        query: dict[str, str | int] = {"topic": "orders", "brokerName": sent.message_queue.broker_name}
        query |= {"queueId": 0, "offset": sent.queue_offset}
        answers = [await at.get("/message", **query, form=form) for form in ("", "text", "json", "hex")]
        answers += [await at.get("/messages", topic="orders", **more) for more in SHOWING]
        answers.append(await at.get("/body", **query))
        for answer in answers:
            assert answer.status_code == 200
            assert answer is answers[-1] or "queueId=0" in answer.text
            assert SECRET not in answer.text
            assert SECRET.encode().hex(" ")[:23] not in answer.text
            assert "***" in answer.text or "2a 2a 2a" in answer.text
        assert json.loads(answers[-1].content)["card"] == {"pan": "***"}
        assert "paid" in answers[0].text
        for telling in TELLING:
            answer = await at.get("/messages", topic="orders", **telling)
            assert answer.status_code == 200
            assert "queueId=0" not in answer.text
        refused = await at.get("/messages", topic="orders", sql=f"token = '{SECRET}'")
        assert refused.status_code == 400
        assert "use where" in refused.text


SHOWING = [{}, {"key": "k1"}, {"contains": "order"}, {"where": "json.card.pan == '***'"}, {"regex": "ord.r"}]
TELLING = [
    {"contains": SECRET},
    {"regex": "411+"},
    {"where": f"json.card.pan == '{SECRET}'"},
    {"where": f"properties.token == '{SECRET}'"},
]


async def test_a_dead_letter_is_sent_again_as_it_is() -> None:
    body = f'{{"card": "{SECRET}"}}'
    async with (
        served(allow_changes=True, brokers=1, topics={"orders": 1}, masks=["json.card"]) as at,
        Admin(nameserver=at.cluster.nameserver) as admin,
        PullConsumer("look", nameserver=at.cluster.nameserver) as consumer,
    ):
        await dead(at.cluster.nameserver, admin, "audit", "orders", body)
        shown = await at.get("/dead-letters", group="audit")
        assert "***" in shown.text
        assert SECRET not in shown.text
        done = await changed(at.http, "/resend", group="audit", one="broker-a/0@0")
        stored = re.search(r"stored in (\S+) at (\d+)", done.text)
        assert stored is not None
        (queue,) = [queue for queue in await consumer.message_queues("%RETRY%audit") if str(queue) == stored[1]]
        (again,) = (await consumer.pull(queue, int(stored[2]))).messages
        assert again.body.decode() == body
