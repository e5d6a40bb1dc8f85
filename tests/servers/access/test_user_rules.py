"""The verdicts by users and policies, with the texts of 5.4.0, and administrators' changes of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.servers.access.user_file import UserFile, read_rules
from pyrmq_core.servers.access.users.changes import create_user, delete_policies, delete_user, put_policies, update_user
from pyrmq_core.servers.access.users.needs import needs_of
from pyrmq_core.servers.access.users.rules import NO_SUBJECT, CheckScope, UserRules
from pyrmq_core.servers.access.users.values import DISABLE, SUPER, Policies, Resource, User, acl_members, policies_of
from tests.servers.access.requests import heart_beat, signed

PASSWORD = "pass"
IP = "192.168.0.9"
SCOPE = CheckScope(cluster="c", authorizes=True)


def entry(resource: str, *actions: str, decision: str = "Allow", ips: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, "sourceIps": list(ips)}


def policies(*entries: dict[str, Any], policy_type: str = "Custom") -> Policies:
    return policies_of([{"policyType": policy_type, "entries": list(entries)}])


def rules(*entries: dict[str, Any]) -> UserRules:
    users = {name: User(name, PASSWORD, kind) for name, kind in (("root", SUPER), ("u", "Normal"))}
    return UserRules(users, {"User:u": policies(*entries)} if entries else {})


def denial(given: UserRules, request: Command, user: str = "u", scope: CheckScope = SCOPE, ip: str = IP) -> str:
    return given.denial(signed(request, user, PASSWORD), ip, scope)


def no_permission(key: str, fault: str = "no matched policies.") -> str:
    return f"User:u has no permission to access {key} from {IP}, {fault}"


SEND = Command(310, {"b": "t"}, b"body")


def test_only_users_may_send() -> None:
    given = rules()
    assert given.denial(SEND, IP, SCOPE) == "username cannot be null."
    assert denial(given, SEND, "stranger") == "User:stranger is not found."
    assert given.denial(signed(SEND, "u", "wrong"), IP, SCOPE) == "check signature failed."
    assert given.denial(replace(SEND, ext={"AccessKey": "u"}), IP, SCOPE) == "check signature failed."
    assert given.denial(replace(signed(SEND, "u", PASSWORD), body=b"x"), IP, SCOPE) == "check signature failed."
    disabled = update_user(given, "u", None, None, DISABLE)
    assert denial(disabled, SEND) == "User:u is disabled."
    assert denial(given, SEND, scope=CheckScope()) == ""
    assert denial(given, SEND) == no_permission("Topic:t")
    assert denial(given, SEND, "root") == ""


def test_exempt_codes_need_no_signature_and_prove_no_name() -> None:
    given = rules(entry("Topic:t", "Pub"))
    exempt = CheckScope(unauthenticated_codes=frozenset(("310",)))
    assert given.denial(SEND, IP, exempt) == ""
    assert given.denial(Command(10, {"topic": "t"}), IP, exempt) == "username cannot be null."
    both = replace(exempt, authorizes=True)
    failed = "Authorization failed. Please verify your access rights and try again."
    assert given.denial(SEND, IP, both) == failed
    assert given.denial(replace(SEND, ext={**SEND.ext, "AccessKey": "root"}), IP, both) == failed
    assert denial(given, SEND, scope=both) == ""
    assert given.denial(SEND, IP, replace(both, unauthorized_codes=frozenset(("310",)))) == ""
    assert denial(rules(), SEND, scope=replace(SCOPE, unauthorized_codes=frozenset(("310",)))) == ""


def test_an_unsigned_heartbeat_of_an_exempt_code_may_only_name_producers() -> None:
    exempt = replace(SCOPE, unauthenticated_codes=frozenset(("34",)))
    assert rules().denial(heart_beat(), IP, exempt) == ""
    assert rules().denial(heart_beat(("g", ("t",))), IP, exempt) == NO_SUBJECT
    assert rules().denial(heart_beat(), IP, SCOPE) == "username cannot be null."


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([entry("Topic:t", "Pub")], ""),
        ([entry("Topic:t", "All")], ""),
        ([entry("*", "Pub")], ""),
        ([entry("Topic:*", "Pub")], ""),
        ([entry("topic:t", "pUB")], ""),
        ([entry("Topic:t*", "Pub")], ""),
        ([entry("Topic:**", "Pub")], ""),
        ([entry("Any:x", "Pub")], ""),
        ([entry("Topic:", "Pub")], "no matched policies."),
        ([entry("Topic:t", "Sub")], "no matched policies."),
        ([entry("Topic:tt", "Pub"), entry("Topic:tt*", "Pub")], "no matched policies."),
        ([entry("Group:t", "Pub")], "no matched policies."),
        ([entry("Topic:t", "Pub", decision="Deny")], "the decision is deny."),
        ([entry("*", "Pub", decision="Deny"), entry("Topic:*", "Pub")], ""),
        ([entry("Topic:*", "Pub"), entry("*", "Pub", decision="Deny")], ""),
        ([entry("Topic:*", "Pub", decision="Deny"), entry("Topic:t*", "Pub")], ""),
        ([entry("Topic:t*", "Pub", decision="Deny"), entry("Topic:t", "Pub")], ""),
        ([entry("Topic:t", "Pub", decision="Deny"), entry("Topic:t*", "Pub")], "the decision is deny."),
        ([entry("Topic:t", "Pub"), entry("Topic:t", "Pub", decision="Deny")], "the decision is deny."),
        ([entry("Topic:t", "Pub", ips=("192.168.0.9",))], ""),
        ([entry("Topic:t", "Pub", ips=("10.0.0.1", "192.168.0.0/24"))], ""),
        ([entry("Topic:t", "Pub", ips=("192.168.1.0/24", "fe80::/10"))], "no matched policies."),
        ([entry("Topic:t", "Pub", ips=("192.168.0.9/32",))], ""),
        ([entry("Topic:t", "Pub", decision="Deny", ips=("10.0.0.1",)), entry("Topic:*", "Pub")], ""),
    ],
)
def test_the_most_exact_entry_decides(entries: list[dict[str, Any]], fault: str) -> None:
    assert denial(rules(*entries), SEND) == (no_permission("Topic:t", fault) if fault else "")


def test_default_policies_count_where_no_other_fits() -> None:
    both = policies(entry("Topic:a", "Pub")) + policies(
        entry("Topic:a", "Pub", decision="Deny"), entry("Topic:t", "Pub"), policy_type="Default"
    )
    given = UserRules({"u": User("u", PASSWORD)}, {"User:u": both})
    assert denial(given, SEND) == ""
    assert denial(given, Command(310, {"b": "a"})) == ""


def test_an_address_fits_in_any_spelling() -> None:
    given = rules(entry("Topic:t", "Pub", ips=("2001:DB8::0:1",)))
    assert denial(given, SEND, ip="2001:db8::1") == ""
    assert denial(given, SEND, ip="2001:db8::2") != ""


READ = [entry("Topic:t", "Sub"), entry("Group:g", "Sub")]
MANAGED = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"%s","brokerName":"b","queueId":0}]}'


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        (Command(11, {"topic": "t", "consumerGroup": "g"}), ""),
        (Command(361, {"topic": "x", "consumerGroup": "g"}), "Topic:x"),
        (Command(11, {"topic": "t", "consumerGroup": "x"}), "Group:x"),
        (Command(11, {"topic": "%RETRY%g", "consumerGroup": "g"}), ""),
        (Command(11), "Topic:null"),
        (Command(11, {"topic": "%RETRY%x", "consumerGroup": "g"}), "Group:x"),
        (Command(14, {"topic": "%RETRY%x", "consumerGroup": "g"}), "Group:x"),
        (Command(15, {"topic": "%RETRY%x", "consumerGroup": "g"}), "Group:x"),
        (Command(361, {"topic": "%RETRY%x", "consumerGroup": "g"}), "Group:x"),
        (Command(323, {}), "Topic:null"),
        (Command(310, {"b": "%RETRY%g", "a": "x"}), ""),
        (Command(310, {"b": "%RETRY%x", "a": "g"}), "Group:x"),
        (Command(36, {"group": "g"}), ""),
        (heart_beat(("g", ("t", "%RETRY%g"))), ""),
        (heart_beat(("g", ("t",)), ("x", ("t",))), "Group:x"),
        (heart_beat(), ""),
        (Command(41, body=MANAGED % b"t"), ""),
        (Command(42, body=MANAGED % b"x"), "Topic:x"),
        (Command(35, {"consumerGroup": "x"}), "Group:x"),
        (Command(35, {"producerGroup": "x"}), ""),
        (Command(38, {"consumerGroup": "g"}), ""),
        (Command(14, {"topic": "t", "consumerGroup": "g"}), ""),
        (Command(15, {"topic": "x", "consumerGroup": "g"}), "Topic:x"),
        (Command(30, {"topic": "t"}), "Topic:t"),  # Sub is not Get
        (Command(105, {"topic": "t"}), ""),
        (Command(105, {"topic": "%RETRY%x"}), "Group:x"),
        (Command(12, {"topic": "t"}), ""),
        (Command(12, {"topic": "%RETRY%x"}), "Group:x"),
        (Command(17, {"topic": "new"}), "Topic:new"),
        (Command(18, body=dumps({"topicConfigList": [{"topicName": "new"}]})), "Topic:new"),
        (Command(200, body=dumps({"groupName": "new"})), "Group:new"),
        (Command(225, body=dumps({"groupConfigList": [{"groupName": "new"}]})), "Group:new"),
        (Command(25), "Cluster:c"),
        (Command(318), "Cluster:c"),
        (Command(103, {"clusterName": "other"}), "Cluster:other"),
        (Command(100), "Cluster:c"),
        (Command(3001, {"username": "x"}), "Cluster:c"),
        (Command(208, {"consumerGroup": "g", "topicList": "t;x"}), "Group:g"),
        (Command(37, {"topic": ""}), ""),
        (Command(26), ""),
    ],
)
def test_what_each_request_needs(request_: Command, missing: str) -> None:
    assert denial(rules(*READ), request_) == (no_permission(missing) if missing else "")


@pytest.mark.parametrize("code", [34, 41, 42, 18, 200, 225])
def test_a_body_that_cannot_be_read_is_denied(code: int) -> None:
    for body in (b"", b"[]", b"{", b'{"groupConfigList":3,"topicConfigList":[1],"consumerDataSet":[{}]}'):
        assert denial(rules(*READ), Command(code, body=body)) in ("parse authorization context error.", "")
    assert denial(rules(*READ), Command(code, body=b"{")) == "parse authorization context error."


def test_several_names_in_one_field_are_each_needed() -> None:
    needs = needs_of(Command(308, {"filterGroups": "a,b", "compareGroup": "c", "topic": "t"}), "c")
    assert {need.key for need in needs} == {"Group:a", "Group:b", "Group:c", "Topic:t"}


def test_users_are_made_changed_and_removed() -> None:
    given = create_user(rules(), User("new", "secret"))
    assert denial(given, SEND, "root") == ""
    for user in (User("new", "x"), User(" ", "x"), User("other", " ")):
        with pytest.raises(InvalidArgument):
            create_user(given, user)
    changed = update_user(given, "new", "", SUPER, None)
    assert changed.users["new"] == User("new", "secret", SUPER)
    with pytest.raises(InvalidArgument, match="The user is not exist"):
        update_user(given, "nobody", "x", None, None)
    gone = delete_user(rules(entry("*", "All")), "u")
    assert (set(gone.users), dict(gone.policies)) == ({"root"}, {})


def test_policies_are_merged_by_resource_and_removed_one_by_one() -> None:
    first = put_policies(rules(), "User:u", policies(entry("Topic:a", "Pub"), entry("Topic:b", "Pub")))
    second = put_policies(first, "User:u", policies(entry("Topic:b", "Sub"), entry("Group:g", "Sub")))
    listed = [
        (policy_entry.resource.key, policy_entry.actions) for policy_entry in second.policies["User:u"][0].entries
    ]
    assert listed == [("Topic:a", ("Pub",)), ("Topic:b", ("Sub",)), ("Group:g", ("Sub",))]
    for key in ("Topic:a", "Topic:b", "Topic:c"):
        second = delete_policies(second, "User:u", "Custom", Resource.of(key))
    assert [policy_entry.resource.key for policy_entry in second.policies["User:u"][0].entries] == ["Group:g"]
    assert not delete_policies(second, "User:u", "Custom", Resource.of("Group:g")).policies
    assert not delete_policies(second, "User:u", "Custom", None).policies
    with pytest.raises(InvalidArgument, match="The acl is not exist"):
        delete_policies(rules(), "User:u", "Custom", None)
    with pytest.raises(InvalidArgument, match=r"The subject of User:x is not exist\."):
        put_policies(rules(), "User:x", policies(entry("*", "All")))


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ([], "The policies is empty."),
        ([{"policyType": "Custom", "entries": []}], "The policies is empty."),
        ([{"entries": [entry("Queue:x", "Pub")]}], "The resource is null."),
        ([{"entries": [entry("Topic:x", "Fly")]}], "The actions is empty."),
        ([{"entries": [entry("Topic:x", "Any")]}], "The actions can not be Any."),
        ([{"entries": [entry("Topic:x", "Pub", ips=(" ",))]}], "The source ip is empty."),
        ([{"entries": [entry("Topic:x", "Pub", ips=("10.0.0",))]}], "The source ip is invalid."),
        ([{"entries": [entry("Topic:x", "Pub", decision="Perhaps")]}], "The decision is null or illegal."),
    ],
)
def test_wrong_policies_are_refused(members: object, fault: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        policies_of(members)
    assert str(caught.value) == fault


NAMES = st.text("ab*:", max_size=3)
ENTRIES = st.builds(
    entry,
    st.one_of(st.just("*"), st.builds("{}:{}".format, st.sampled_from(["Topic", "Group", "Cluster"]), NAMES)),
    st.sampled_from(["Pub", "Sub", "All"]),
    decision=st.sampled_from(["Allow", "Deny"]),
    ips=st.sampled_from([(), ("10.0.0.0/8",), ("192.168.0.9",)]),
)


@given(st.lists(ENTRIES, min_size=1, max_size=5), NAMES)
def test_any_policies_are_kept_as_they_are_and_decide_in_any_order(entries: list[dict[str, Any]], topic: str) -> None:
    user_policies = policies(*entries)
    kept = acl_members("User:u", user_policies)
    assert policies_of(kept["policies"]) == user_policies
    request = Command(310, {"b": topic})
    ruleset, other = rules(*entries), rules(*reversed(entries))
    assert denial(ruleset, request) == denial(other, request)
    if not any(given["decision"] == "Allow" for given in entries):
        assert denial(ruleset, request) != ""


async def test_the_file_of_users_has_lines_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "authUsers.json"
    file = UserFile(path)
    for number in range(20):
        user = User(f"größe {number}", 'p"\n,')
        await file.change(partial(create_user, user=user))
    assert read_rules(path.read_bytes()) == file.rules
    assert len(file.rules.users) == 20
    names = [line for line in path.read_text().splitlines() if line.startswith('"username": "größe ')]
    assert len(names) == 20
