"""`pyrmq acl` from its first user or account to the last, alike on our broker and on RocketMQ's."""

from __future__ import annotations

import json
from datetime import datetime

from tests.support.terminal import Terminal

NEW_SECRET = "brand-new-s3cret"


def users_and_policies(terminal: Terminal, name: str) -> None:
    """Makes a user with a policy, changes both, and removes them; no output has a password."""
    said = [terminal.text("acl", "user", "create", name, "--password", NEW_SECRET)]
    assert said[0] == f"user {name} is made at broker-a\n"
    (row,) = terminal.rows("acl", "user", "list", name)
    assert (row["brokerName"], row["username"], row["userType"], row["userStatus"]) == (
        "broker-a",
        name,
        "Normal",
        "enable",
    )
    said.append(terminal.text("acl", "user", "update", name, "--status", "disable"))
    assert terminal.rows("acl", "user", "list", name)[0]["userStatus"] == "disable"
    grant = ("--resource", "Topic:orders*", "--resource", "Group:billing", "--action", "Pub", "--action", "Sub")
    said.append(terminal.text("acl", "policy", "create", name, *grant, "--source-ip", "192.168.0.0/16"))
    rows = terminal.rows("acl", "policy", "list", name)
    assert {(row["subject"], row["resource"], row["actions"], row["decision"], row["sourceIps"]) for row in rows} == {
        (f"User:{name}", "Topic:orders*", "Pub, Sub", "Allow", "192.168.0.0/16"),
        (f"User:{name}", "Group:billing", "Pub, Sub", "Allow", "192.168.0.0/16"),
    }
    said.append(
        terminal.text("acl", "policy", "update", name, "--resource", "Group:billing", "--action", "Sub", "--deny")
    )
    (row,) = terminal.rows("acl", "policy", "list", name, "--resource", "Group:billing")
    assert (row["actions"], row["decision"]) == ("Sub", "Deny")
    said.append(terminal.text("acl", "policy", "delete", name, "--resource", "Group:billing"))
    assert [row["resource"] for row in terminal.rows("acl", "policy", "list", name)] == ["Topic:orders*"]
    said.append(terminal.text("acl", "policy", "delete", name))
    assert terminal.rows("acl", "policy", "list", name) == []
    said += [terminal.text("acl", "user", "list"), terminal.text("acl", "user", "list", "--json")]
    said.append(terminal.text("acl", "user", "delete", name, "--yes", "--json"))
    assert json.loads(said[-1]) == [{"brokerName": "broker-a", "username": name}]
    assert terminal.rows("acl", "user", "list", name) == []
    assert not any(NEW_SECRET in text for text in said)


def accounts(terminal: Terminal, key: str) -> None:
    """Makes an account, changes and removes it, and sets white addresses; no output has a secret."""
    put = ("acl", "account", "put", key, "--secret", NEW_SECRET)
    (before,) = terminal.rows("acl", "account", "versions")
    said = [terminal.text(*put, "--topics", "DENY", "--groups", "SUB", "--topic", "orders=PUB|SUB")]
    assert said[0] == f"account {key} is kept at broker-a\n"

    def row() -> dict[str, object]:
        (account_row,) = [row for row in terminal.rows("acl", "account", "list") if row["accessKey"] == key]
        return account_row

    account = row()
    assert (account["admin"], account["topics"], account["groups"]) == (False, "DENY, orders=PUB|SUB", "SUB")
    said.append(terminal.text(*put, "--topics", "PUB"))
    assert row()["topics"] == "PUB, orders=PUB|SUB"
    said.append(terminal.text("acl", "account", "white-addresses", "10.10.10.*", "10.10.11.*"))
    white = [row["whiteAddress"] for row in terminal.rows("acl", "account", "list") if row["accessKey"] == "*"]
    assert white == ["10.10.10.*", "10.10.11.*"]
    said += [terminal.text("acl", "account", "list"), terminal.text("acl", "account", "list", "--json")]
    (after,) = terminal.rows("acl", "account", "versions")
    assert (after["brokerName"], after["file"]) == (before["brokerName"], before["file"])
    assert str(after["file"]).endswith("plain_acl.yml")
    assert int(str(after["changes"])) == int(str(before["changes"])) + 3
    assert datetime.fromisoformat(str(after["changed"])).tzinfo
    said.append(terminal.text("acl", "account", "delete", key, "--yes", "--json"))
    assert json.loads(said[-1]) == [{"brokerName": "broker-a", "accessKey": key}]
    assert key not in terminal.text("acl", "account", "list")
    assert not any(NEW_SECRET in text for text in said)
