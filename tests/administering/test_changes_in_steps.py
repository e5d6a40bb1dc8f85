"""Changes at several servers, ended between each two requests: the same call, made again, ends well."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyrmq_core import NetworkError, ResponseError
from pyrmq_core.blocking import Admin, Client, EmbeddedCluster
from pyrmq_core.embedded import PASS, CutConnection, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command

ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"admin12345"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"admin","secretKey":"admin12345"}',
}
CHANGING = ("UPDATE", "DELETE", "CREATE", "PUT_KV")
MOST_STEPS = 10


class Steps:
    """A cluster of two brokers whose connections are cut at the request number `last` of a change."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.made, self.last = 0, -1
        for code in RequestCode:
            if any(word in code.name for word in CHANGING):
                cluster.control(code, self._count)

    async def _count(self, request: Command, peer: Peer) -> Pass:
        if self.made == self.last:
            raise CutConnection
        self.made += 1
        return PASS

    def ended_between(self, begin: Callable[[], object], change: Callable[[], object]) -> Iterator[int]:
        """Makes the change from the beginning, up to each of its requests, and then again; yields the number."""
        for last in range(MOST_STEPS):
            self.last = -1
            begin()
            self.made, self.last = 0, last
            try:
                change()
            except NetworkError:
                self.last = -1
                change()
                yield last
            else:
                assert self.made == last
                self.last = -1
                return
        raise AssertionError("the change has no end")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, settings=ACCESS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def steps(cluster: EmbeddedCluster) -> Steps:
    return Steps(cluster)


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with (
        Client(nameserver=cluster.nameserver, access_key="admin", secret_key="admin12345") as client,
        Admin(client=client) as admin,
    ):
        yield admin


def test_an_order_topic_is_created(steps: Steps, admin: Admin) -> None:
    """Its order configuration comes behind it, as with mqadmin."""
    numbers = []
    for number in steps.ended_between(
        lambda: admin.delete_topic("keys"), lambda: admin.create_topic("keys", queues=2, order=True)
    ):
        numbers.append(number)
        assert admin.topics.order("keys") == {"broker-a": 2, "broker-b": 2}
        assert sorted(admin.topic_config("keys")) == ["broker-a", "broker-b"]
    assert numbers == [0, 1, 2]


def test_an_order_topic_is_deleted(steps: Steps, admin: Admin) -> None:
    """Its order configuration goes with it."""
    numbers = []
    for number in steps.ended_between(
        lambda: admin.create_topic("keys", queues=2, order=True), lambda: admin.delete_topic("keys")
    ):
        numbers.append(number)
        assert (admin.topics.order("keys"), admin.topic_config("keys")) == (None, {})
    assert numbers == [0, 1, 2, 3, 4]


def test_a_user_is_created(steps: Steps, admin: Admin) -> None:
    """At the broker that has the user it gets the new password; a user that every broker has is refused."""
    numbers = []
    for number in steps.ended_between(
        lambda: admin.users.delete("rita"), lambda: admin.users.create("rita", "rita12345")
    ):
        numbers.append(number)
        users = admin.users.list("rita").answers
        assert [[user.username for user in users[name]] for name in sorted(users)] == [["rita"], ["rita"]]
    assert numbers == [0, 1]
    with pytest.raises(ResponseError, match="existed"):
        admin.users.create("rita", "another12345")


@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_policies_are_changed(steps: Steps, admin: Admin, verb: str) -> None:
    def begin() -> None:
        admin.users.delete("paul")
        admin.users.create("paul", "paul12345")
        if verb != "create":
            admin.policies.create("User:paul", ["Topic:orders"], ["Pub"])

    def change() -> None:
        if verb == "delete":
            admin.policies.delete("User:paul", resource="Topic:orders")
        else:
            getattr(admin.policies, verb)("User:paul", ["Topic:orders"], ["Sub"])

    numbers = []
    for number in steps.ended_between(begin, change):
        numbers.append(number)
        policies = admin.policies.list("User:paul").answers
        actions = [[policy.actions for policy in policies[name]] for name in sorted(policies)]
        assert actions == ([[], []] if verb == "delete" else [[("Sub",)], [("Sub",)]])
    assert numbers == [0, 1]


@pytest.mark.parametrize("is_new", [True, False])
def test_groups_are_changed(steps: Steps, admin: Admin, is_new: bool) -> None:
    begin, change = (admin.groups.delete, admin.groups.create) if is_new else (admin.groups.create, admin.groups.delete)
    numbers = list(steps.ended_between(lambda: begin("readers"), lambda: change("readers")))
    assert numbers[:2] == [0, 1]
