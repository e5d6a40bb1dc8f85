"""`plain_acl.yml` as a text: scalars as SnakeYAML and fastjson of 4.9.7 read them, and any rules after a rewriting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.plain.accounts import text_of
from pyrmq_core.servers.access.plain.rules import PlainRules, put_account, put_white_addresses, remove_account, rules_of
from pyrmq_core.servers.access.yaml_text import dump_document, load_document
from tests.servers.access.requests import signed

IP = "10.0.0.1"


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        ("12345678", "12345678"),
        ("01234567", "342391"),
        ("0123456789", "0123456789"),
        ("0x1234567", "19088743"),
        ("1_234_567", "1234567"),
        ("1234567.0", "1234567.0"),
        ("yes", "true"),
        ("12:30:45", "45045"),
        ("+12345678", "12345678"),
        (".5", "0.5"),
        ("a:b:c:d", "a:b:c:d"),
        ("a#b", "a#b"),
        ("'12345678'", "12345678"),
        ('"a\\tb"', "a\tb"),
        ("!!str 1234567", "1234567"),
        ("é1234567", "é1234567"),
    ],
)
def test_a_scalar_is_the_text_that_4_9_reads(scalar: str, text: str) -> None:
    """Each was read by the release's own classes (AclUtils.getYamlDataObject, PlainAccessConfig)."""
    document: Any = load_document(f"key: {scalar}\n".encode())
    assert text_of(document, "key") == text


@pytest.mark.parametrize(
    ("text", "is_admin"),
    [
        ("true", True),
        ("yes", True),
        ("TRUE", True),
        ("1", True),
        ("'1'", True),
        ("0", False),
        ("no", False),
        ("", False),
    ],
)
def test_admin_is_read_as_4_9_reads_it(text: str, is_admin: bool) -> None:
    document = load_document(
        f"accounts:\n- accessKey: a-long-key\n  secretKey: long-enough\n  admin: {text}\n".encode()
    )
    assert rules_of([("acl.yml", document)]).accounts["a-long-key"].is_admin == is_admin


NAMES = st.text("abcXYZ019_-%|", min_size=1, max_size=6)
KEYS = st.text(st.characters(exclude_categories=["C"]), min_size=7, max_size=12)
PERMISSIONS = st.sampled_from(["PUB", "SUB", "PUB|SUB", "SUB|PUB", "DENY", "ANY"])
GRANTS = st.dictionaries(NAMES, PERMISSIONS, max_size=4)
ACCOUNTS = st.builds(
    lambda key, secret, admin, topic, group, topics, groups: {
        "accessKey": key,
        "secretKey": secret,
        "admin": admin,
        "defaultTopicPerm": topic,
        "defaultGroupPerm": group,
        "topicPerms": [f"{name}={permission}" for name, permission in topics.items()],
        "groupPerms": [f"{name}={permission}" for name, permission in groups.items()],
    },
    KEYS,
    KEYS,
    st.booleans(),
    PERMISSIONS,
    PERMISSIONS,
    GRANTS,
    GRANTS,
)


@given(st.lists(ACCOUNTS, min_size=1, max_size=3, unique_by=lambda account: account["accessKey"]), NAMES, NAMES)
def test_any_rules_are_the_same_after_a_rewriting_and_judge_as_a_plain_reading(
    accounts: list[dict[str, Any]], topic: str, group: str
) -> None:
    document: dict[str, Any] = {"globalWhiteRemoteAddresses": [], "accounts": accounts}
    rewritten = load_document(dump_document(document))
    assert rewritten == document
    rules = rules_of([("acl.yml", rewritten)])
    for account in accounts:
        assert may(rules, account, Command(310, {"b": topic})) == allows(account, "topic", topic, "PUB")
        pulls = allows(account, "topic", topic, "SUB") and allows(account, "group", group, "SUB")
        assert may(rules, account, Command(11, {"topic": topic, "consumerGroup": group})) == pulls
    changed = dict(rewritten)
    put_account(changed, {"accessKey": accounts[0]["accessKey"], "admin": True})
    put_white_addresses(changed, [IP])
    assert rules_of([("acl.yml", changed)]).accounts[accounts[0]["accessKey"]].is_admin
    remove_account(changed, accounts[0]["accessKey"])
    assert len(rules_of([("acl.yml", load_document(dump_document(changed)))]).accounts) == len(accounts) - 1


def test_of_several_entries_of_an_account_the_last_one_is_changed_and_kept() -> None:
    entries = [{"accessKey": "account", "secretKey": secret} for secret in ("a-secret-1", "a-secret-2")]
    document: dict[str, Any] = {"accounts": entries}
    put_account(document, {"accessKey": "account", "admin": True})
    assert document["accounts"] == [{"accessKey": "account", "secretKey": "a-secret-2", "admin": True}]


def may(rules: PlainRules, account: dict[str, Any], request: Command) -> bool:
    return not rules.denial(signed(request, account["accessKey"], account["secretKey"]), IP)


def allows(account: dict[str, Any], kind: str, name: str, needed: str) -> bool:
    """Returns the verdict by reading the account as its author would; an administrator without grants may all."""
    if account["admin"] and not account["topicPerms"] and not account["groupPerms"]:
        return True
    granted = dict(entry.split("=") for entry in account[f"{kind}Perms"])
    permission = granted.get(name, account[f"default{kind.capitalize()}Perm"])
    return needed in permission.split("|")
