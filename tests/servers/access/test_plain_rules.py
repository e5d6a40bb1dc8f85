"""The verdicts of plain ACL about requests, with the texts of 4.9.7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.plain.permissions import check_entries, permission
from pyrmq_core.servers.access.plain.rules import PlainRules, rules_of
from tests.servers.access.requests import heart_beat, signed

SECRET = "a-s3cret-key"
ADMIN = {"accessKey": "administrator", "secretKey": SECRET, "admin": True}
USER = {
    "accessKey": "ordinary",
    "secretKey": SECRET,
    "whiteRemoteAddress": "10.0.0.1",
    "defaultTopicPerm": "DENY",
    "defaultGroupPerm": "SUB",
    "topicPerms": ["pub=PUB", "sub = SUB ", "both=PUB|SUB", "none=DENY", "odd=ANY"],
    "groupPerms": ["closed=DENY", "open=SUB"],
}
IP = "192.168.0.9"


def rules(*accounts: dict[str, Any], addresses: tuple[str, ...] = ()) -> PlainRules:
    return rules_of([("acl.yml", {"globalWhiteRemoteAddresses": list(addresses), "accounts": list(accounts)})])


def denial(request: Command, key: str = "ordinary", ip: str = IP) -> str:
    return rules(ADMIN, USER).denial(signed(request, key, SECRET), ip)


def test_unsigned_and_wrongly_signed_requests_are_denied() -> None:
    given = rules(ADMIN, USER)
    request = Command(310, {"b": "pub"}, b"body")
    assert given.denial(request, IP) == "No accessKey is configured"
    assert given.denial(signed(request, "stranger", SECRET), IP) == "No acl config for stranger"
    failed = "Check signature failed for accessKey=ordinary"
    assert given.denial(signed(request, "ordinary", "wrong-secret"), IP) == failed
    right = signed(request, "ordinary", SECRET)
    assert given.denial(right, IP) == ""
    assert given.denial(replace(right, body=b"other"), IP) == failed
    assert given.denial(replace(right, ext={**right.ext, "b": "both"}), IP) == failed
    assert given.denial(replace(right, ext={**right.ext, "more": ""}), IP) == ""  # an empty value is not signed
    assert given.denial(replace(right, ext={k: v for k, v in right.ext.items() if k != "Signature"}), IP) == failed
    assert given.denial(replace(right, ext={**right.ext, "Signature": "ü"}), IP) == failed


def test_white_addresses_need_no_signature() -> None:
    request = Command(310, {"b": "none"})
    assert rules(USER, addresses=("10.0.0.*",)).denial(request, "10.0.0.7") == ""
    assert rules(USER, addresses=("10.0.0.*",)).denial(request, "10.0.1.7") != ""
    claimed = Command(310, {"b": "none", "AccessKey": "ordinary"})
    assert rules(USER).denial(claimed, "10.0.0.1") == ""
    assert rules(USER).denial(claimed, "10.0.0.2") == "Check signature failed for accessKey=ordinary"


SEND, PULL = {"b": "t"}, {"topic": "sub", "consumerGroup": "open"}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Command(10, {"topic": "pub"}), ""),
        (Command(10, {"topic": "sub"}), "No default permission for topic:sub"),
        (Command(310, {"b": "both"}), ""),
        (Command(310, {"b": "other"}), "No default permission for topic:other"),
        (Command(310, {"b": "odd"}), "No default permission for topic:odd"),
        (Command(37, {"topic": "none"}), "No default permission for topic:none"),
        (Command(37), ""),
        (Command(320, {"b": "none"}), "No default permission for topic:none"),
        (Command(310, {"b": "RMQ_SYS_TRACE_TOPIC"}), ""),
        (Command(310, {"b": "%RETRY%open", "a": "closed"}), ""),
        (Command(310, {"b": "%RETRY%closed", "a": "open"}), "No default permission for group:closed"),
        (Command(36, {"group": "open"}), ""),
        (Command(36, {"group": "closed"}), "No default permission for group:closed"),
        (Command(11, PULL), ""),
        (Command(361, {**PULL, "topic": "pub"}), "No default permission for topic:pub"),
        (Command(11, {**PULL, "consumerGroup": "closed"}), "No default permission for group:closed"),
        (Command(11, {**PULL, "consumerGroup": "new"}), ""),
        (Command(12, {"topic": "pub"}), "No default permission for topic:pub"),
        (heart_beat(("open", ("sub", "%RETRY%open"))), ""),
        (heart_beat(("open", ("sub",)), ("closed", ("sub",))), "No default permission for group:closed"),
        (heart_beat(("open", ("sub", "pub"))), "No default permission for topic:pub"),
        (heart_beat(), ""),
        (Command(34, body=b"[]"), "heartbeat: the body is not a JSON object"),
        (Command(35, {"clientID": "c", "consumerGroup": "closed"}), "No default permission for group:closed"),
        (Command(35, {"clientID": "c", "producerGroup": "closed"}), ""),
        (Command(38, {"consumerGroup": "closed"}), "No default permission for group:closed"),
        (Command(15, {"consumerGroup": "open", "topic": "both"}), ""),
        (Command(15, {"consumerGroup": "open", "topic": "none"}), "No default permission for topic:none"),
        (Command(222, {"group": "closed", "topic": "both"}), "No default permission for group:closed"),
        (Command(222, {"group": "open", "topic": "none"}), "No default permission for topic:none"),
        (Command(41, body=b'{"consumerGroup":"open","clientId":"c","mqSet":[]}'), ""),
        (
            Command(42, body=b'{"consumerGroup":"closed","clientId":"c","mqSet":[]}'),
            "No default permission for group:closed",
        ),
        (Command(26), ""),
        (Command(9999), ""),
    ],
)
def test_what_each_request_needs(request_: Command, text: str) -> None:
    assert denial(request_) == text


def test_administration_needs_an_administrator() -> None:
    for code in (17, 18, 25, 50, 51, 53, 54, 200, 207, 215, 225, 306, 314, 316, 323, 329, 353):
        text = f"Need admin permission for request code={code}, but accessKey=ordinary is not"
        assert denial(Command(code, {"topic": "pub"})) == text
        assert denial(Command(code, {"topic": "pub"}), "administrator") == ""
    assert denial(Command(52)) == ""


def test_an_administrator_with_permissions_has_no_others() -> None:
    given = rules({**ADMIN, "topicPerms": ["pub=PUB"]})
    assert given.denial(signed(Command(310, {"b": "pub"}), "administrator", SECRET), IP) == ""
    denied = given.denial(signed(Command(310, {"b": "other"}), "administrator", SECRET), IP)
    assert denied == "No default permission for topic:other"


def test_a_trace_is_sent_with_any_account() -> None:
    assert denial(Command(310, {"b": "RMQ_SYS_TRACE_TOPIC"})) == ""
    assert denial(Command(11, {"topic": "RMQ_SYS_TRACE_TOPIC", "consumerGroup": "open"})) != ""


@pytest.mark.parametrize("version", [399, 400])
def test_the_mark_of_a_query_by_unique_key_is_signed_by_newer_clients(version: int) -> None:
    request = replace(signed(Command(12, {"topic": "both"}), "ordinary", SECRET), version=version)
    added = replace(request, ext={**request.ext, "_UNIQUE_KEY_QUERY": "true"})
    assert (rules(USER).denial(added, IP) == "") == (version == 399)


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"accounts": {"accessKey": "x"}}, "accounts is no list"),
        ({"accounts": ["x"]}, "accounts is no list"),
        ({"accounts": [{}]}, "accessKey=None and secretKey cannot be null"),
        ({"accounts": [{**USER, "secretKey": "short1"}]}, "length should longer than 6"),
        ({"accounts": [{**USER, "topicPerms": ["t"]}]}, "Parse resource permission failed for topic:t"),
        ({"accounts": [{**USER, "groupPerms": ["g=SUB=PUB"]}]}, "Parse resource permission failed for group:g=SUB=PUB"),
        ({"accounts": [{**USER, "topicPerms": "t=PUB"}]}, "topicPerms is no list"),
        ({"accounts": [{**USER, "admin": "maybe"}]}, "admin is 'maybe'; true or false"),
        ({"accounts": [{**USER, "whiteRemoteAddress": "10.0.0.999"}]}, "Netaddress examine Exception"),
        ({"accounts": [{**USER, "secretKey": [1]}]}, "secretKey is not a text"),
        ({"globalWhiteRemoteAddresses": ["x"]}, "Netaddress examine Exception netaddress is x"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_shows_no_secret(document: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        rules_of([("conf/plain_acl.yml", document)])
    assert str(caught.value).startswith("conf/plain_acl.yml: ")
    assert fault in str(caught.value)
    assert "short1" not in str(caught.value)
    assert SECRET not in repr(rules(USER).accounts)


def test_of_an_account_in_two_files_the_first_counts() -> None:
    second = {**USER, "secretKey": "another-secret"}
    given = rules_of([("a.yml", {"accounts": [USER]}), ("b.yml", {"accounts": [second, ADMIN]})])
    assert given.repeated == ("ordinary",)
    assert given.accounts["ordinary"].secret_key == SECRET
    assert given.files == {"ordinary": "a.yml", "administrator": "b.yml"}


def test_numbers_and_texts_stand_for_their_digits() -> None:
    given = rules({"accessKey": 12345678, "secretKey": 87654321, "admin": "TRUE"})
    assert given.denial(signed(Command(17), "12345678", "87654321"), IP) == ""


@given(st.text(max_size=12), st.text(max_size=12))
def test_entries_that_an_administrator_may_set_are_read_back(name: str, text: str) -> None:
    entry = f"{name}={text}"
    try:
        check_entries([entry])
    except InvalidArgument:
        return
    (bits,) = rules({**USER, "topicPerms": [entry], "groupPerms": []}).accounts["ordinary"].granted.values()
    assert bits == permission(entry.split("=")[-1] if text else None) or "=" in text


def test_codes_have_the_names_of_4_9() -> None:
    assert [RequestCode(code).name for code in (50, 51, 53)] == [
        "UPDATE_AND_CREATE_ACL_CONFIG",
        "DELETE_ACL_CONFIG",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
    ]
