"""`pyrmq acl` on our broker in both forms of access control: what it makes, shows and refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import Admin, Client, EmbeddedCluster
from tests.support.acl_jobs import NEW_SECRET, accounts, users_and_policies
from tests.support.guarded import AUTH_5, KEY, READER, READER_SECRET, SECRET, account_settings
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def with_users() -> Iterator[str]:
    with EmbeddedCluster(settings=AUTH_5) as cluster:
        yield cluster.nameserver


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedCluster(settings=account_settings(tmp_path_factory.mktemp("home"))) as cluster:
        yield cluster.nameserver


def administrator(nameserver: str) -> Terminal:
    return Terminal(nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)


def test_users_and_policies(with_users: str) -> None:
    users_and_policies(administrator(with_users), "somebody")


def test_accounts(with_accounts: str) -> None:
    accounts(administrator(with_accounts), "some-account")


def test_a_secret_of_the_environment(with_users: str, with_accounts: str) -> None:
    by_variable = {"PYRMQ_NEW_PASSWORD": NEW_SECRET, "PYRMQ_NEW_SECRET": NEW_SECRET}
    keys = {"PYRMQ_ACCESS_KEY": KEY, "PYRMQ_SECRET_KEY": SECRET}
    Terminal(with_users, **keys, **by_variable).text("acl", "user", "create", "by-variable")
    Terminal(with_accounts, **keys, **by_variable).text("acl", "account", "put", "by-variable")
    with Client(nameserver=with_users, access_key=KEY, secret_key=SECRET) as client, Admin(client=client) as admin:
        (user,) = admin.users.list("by-variable").answers["broker-a"]
        assert user.password == NEW_SECRET
        assert NEW_SECRET not in repr(user)
    with Client(nameserver=with_accounts, access_key=KEY, secret_key=SECRET) as client, Admin(client=client) as admin:
        by_key = {account.access_key: account for account in admin.accounts.list().answers["broker-a"].accounts}
        assert by_key["by-variable"].secret_key == NEW_SECRET
        assert NEW_SECRET not in repr(by_key)


def test_keys_that_may_only_read(with_accounts: str) -> None:
    reader = Terminal(with_accounts, PYRMQ_ACCESS_KEY=READER, PYRMQ_SECRET_KEY=READER_SECRET)
    for words in (("list",), ("put", "mine-alone", "--secret", NEW_SECRET), ("delete", KEY, "--yes")):
        refused = reader.refused(1, "acl", "account", *words)
        assert refused.startswith("Error: broker-a (127.0.0.1:")
        assert NEW_SECRET not in refused
    assert KEY in administrator(with_accounts).text("acl", "account", "list")


def test_a_broker_without_such_access_control_is_named(with_users: str, with_accounts: str) -> None:
    refused = administrator(with_users).refused(1, "acl", "account", "list")
    assert "accounts (accounts of plain_acl.yml: RocketMQ before 5.3.3)" in refused
    refused = administrator(with_accounts).refused(1, "acl", "user", "list")
    assert "users (users: RocketMQ 5.3 and later)" in refused


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("user create somebody", "Missing option '--password'"),
        ("user update somebody", "give --password, --type or --status"),
        ("user update somebody --status off", "Invalid value for '--status'"),
        ("policy create somebody --action Pub", "Missing option '--resource'"),
        ("account put somebody --secret s --topic T=ALL", "is not NAME=DENY, PUB, SUB or PUB|SUB"),
        ("account put somebody --secret s --topics ALL", "Invalid value for '--topics'"),
        ("account white-addresses", "Missing argument"),
    ],
)
def test_wrong_use_ends_with_2(with_users: str, arguments: str, text: str) -> None:
    assert text in administrator(with_users).refused(2, "acl", *arguments.split())
