"""`pyrmq acl` on each broker with access control, ours and RocketMQ's."""

from __future__ import annotations

import re
from typing import Final

import pytest

from pyrmq_core.protocol.requests.broker.users import CreateAcl, CreateUser
from tests.support.acl_jobs import accounts, users_and_policies
from tests.support.consumer_jobs import fresh
from tests.support.guarded import KEY, READER, READER_SECRET, SECRET, Guarded
from tests.support.reading_only import changes, error_of, every_command
from tests.support.terminal import Terminal

# NameServers of these clusters are open; a consumer takes seconds, and the doctor looks at Spark, too.
LEFT_OUT: Final = ("kv ", "topic order", "nameserver", "broker wipe", "broker add", "consume", "doctor")
# 5.4.0 takes these of any user that it knows (DefaultAuthorizationContextBuilder.java has no rule for them).
OPEN_WITH_USERS: Final = {
    *("group create", "broker clean"),
    *("broker config broker-a --set fileReservedTime=71", "broker config --all --set fileReservedTime=71"),
}
# 4.9.7 wants an administrator for topics, groups, settings and the list of accounts alone (Permission.java).
OPEN_WITH_ACCOUNTS: Final = {
    *("group reset", "group seek", "group clone", "broker clean"),
    *("acl account put", "acl account delete", "acl account white-addresses"),
}


def test_from_the_first_to_the_last(guarded: Guarded) -> None:
    terminal = Terminal(guarded.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
    if guarded.users:
        users_and_policies(terminal, fresh("user"))
    else:
        accounts(terminal, fresh("account"))


@pytest.mark.parametrize("guarded", ["5.4.0", "4.9.7"], indirect=True)
def test_each_command_with_keys_that_may_only_read(guarded: Guarded) -> None:
    """It works, or says in one line which address refused what, with its code."""
    topic, address = fresh("readable"), guarded.nameserver
    administrator = Terminal(address, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
    if guarded.users:
        make_reader(guarded)
    administrator.text("topic", "create", topic, "-r", "1", "-w", "1")
    administrator.text("group", "create", topic)
    administrator.text("send", topic, "body")
    administrator.text("group", "reset", topic, "-t", topic, "--to", "earliest")
    terminal, worked = Terminal(address, PYRMQ_ACCESS_KEY=READER, PYRMQ_SECRET_KEY=READER_SECRET), set[str]()
    for words, arguments in every_command(topic).items():
        if words.startswith(LEFT_OUT):
            continue
        result = terminal.run(*arguments)
        if result.exit_code == 0:
            worked.add(words)
            continue
        error = error_of(result)
        assert guarded.broker in error, (words, error)
        assert re.search(r" answered [A-Z0-9_]+ \(\d+\).* with [A-Z_]+ \(\d+\)", error), (words, error)
    assert {words for words in worked if changes(words)} - {"dlq resend"} == (  # which finds no letter
        OPEN_WITH_USERS if guarded.users else OPEN_WITH_ACCOUNTS
    )
    assert worked >= {
        "topic list",
        "topic route",
        "topic stats",
        "tail",
        "query",
        "group list",
        "broker list",
        "health",
    }
    assert administrator.rows("topic", "stats", topic)[0]["messages"] == 1


def make_reader(guarded: Guarded) -> None:
    user = {"username": READER, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
    entries = [
        {"resource": resource, "actions": ["Sub", "Get", "List"], "decision": "Allow"}
        for resource in ("Topic:*", "Group:*", "Cluster:*")
    ]
    acl = {"subject": f"User:{READER}", "policies": [{"policyType": "Custom", "entries": entries}]}
    for request in (CreateUser(READER, user), CreateAcl(f"User:{READER}", acl)):
        assert guarded.ask(request.to_command()).code == 0
