"""Brokers with access control, ours and Apache's: with accounts as in 4.9, or with users and policies as in 5.x."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from pyrmq_core import (
    Admin,
    Client,
    Command,
    ConsumeLater,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from pyrmq_core.model import ConsumeFromWhere
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.requests.broker.users import CreateAcl, CreateUser
from tests.support.apache import (
    BOOT_SECONDS,
    ApacheBroker,
    ApacheNameServer,
    ask,
    boot_cluster,
    registered_brokers,
)
from tests.support.consumer_jobs import Seen, fresh
from tests.support.java_programs import mqadmin, temporary_directory
from tests.support.our_cluster import boot_our_cluster

KEY, SECRET = "administrator", "a-very-s3cret-key"  # 4.9 wants more than six characters of each
READER, READER_SECRET = "reader-only", "another-s3cret"
MEMBER = "ordinary-member"  # may send to all topics, and consume in all groups
PROVIDER = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
POLICIES = "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
# 5.x: authentication and authorization ("ACL 2.0").
AUTH_5 = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": PROVIDER,
    "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": KEY, "secretKey": SECRET}),
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": POLICIES,
}
# 4.9: plain_acl.yml in the home's conf.
ACL_4 = f"""
globalWhiteRemoteAddresses: [10.10.10.*]
accounts:
- accessKey: {KEY}
  secretKey: {SECRET}
  whiteRemoteAddress:
  admin: true
- accessKey: {READER}
  secretKey: {READER_SECRET}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: granted-some
  secretKey: {READER_SECRET}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [pub=PUB, both=PUB|SUB, no=DENY]
  groupPerms: [G=SUB, GP=PUB]
- accessKey: {MEMBER}
  secretKey: {READER_SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: white-address
  secretKey: {READER_SECRET}
  whiteRemoteAddress: 127.0.0.*
"""


def account_settings(home: Path, more: str = "") -> dict[str, str]:
    """Writes the accounts of `ACL_4`, and `more`, below a home; returns the settings of a broker that reads them."""
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(ACL_4 + more)
    return {"aclEnable": "true", "rocketmqHome": str(home)}


@dataclass(frozen=True)
class Guarded:
    """A cluster whose broker refuses unsigned requests: with `users`, or with accounts."""

    users: bool
    is_ours: bool
    nameserver: str
    broker: str

    @property
    def java(self) -> str:
        """The release whose tools know this form."""
        return "5.4.0" if self.users else "4.9.7"

    def client(self, key: str | None = KEY, secret: str | None = SECRET) -> Client:
        return Client(nameserver=self.nameserver, access_key=key, secret_key=secret)

    def mqadmin(self, *arguments: str) -> str:
        return mqadmin(self.java, *arguments, nameserver=self.nameserver)

    def ask(self, request: Command, key: str | None = KEY, secret: str = SECRET) -> Command:
        """Returns the broker's answer to a request, signed unless the key is None."""
        if key is None:
            return ask(self.broker, request)
        return ask(self.broker, Command(request.code, sign(request.ext, request.body, key, secret), request.body))


@contextmanager
def _ours(*, users: bool) -> Iterator[Guarded]:
    with temporary_directory("ours") as home:
        settings = AUTH_5 if users else account_settings(home)
        with boot_our_cluster(("broker-a",), broker_settings=settings) as cluster:
            yield Guarded(users, True, cluster.nameserver.address, cluster.brokers["broker-a"].address)


@contextmanager
def _apache_5() -> Iterator[Guarded]:
    with boot_cluster("5.4.0", broker_settings=AUTH_5) as cluster:
        yield Guarded(True, False, cluster.nameserver.address, cluster.brokers["broker-a"].address)


@contextmanager
def _apache_4() -> Iterator[Guarded]:
    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory("4.9.7"))
        nameserver = ApacheNameServer("4.9.7", home / "namesrv", {}, ())
        stack.callback(nameserver.kill)
        nameserver.start()
        broker = ApacheBroker("broker-a", "4.9.7", nameserver.address, home / "broker-a", {"aclEnable": "true"}, ())
        (broker.home / "conf" / "plain_acl.yml").write_text(ACL_4)
        stack.callback(broker.kill)
        broker.launch()  # it refuses the probe, which is unsigned; its NameServer knows when it has registered
        broker.process.wait_until(lambda: "broker-a" in registered_brokers(nameserver.address), BOOT_SECONDS)
        yield Guarded(False, False, nameserver.address, broker.address)


CLUSTERS = {
    "our users": lambda: _ours(users=True),
    "5.4.0": _apache_5,
    "our accounts": lambda: _ours(users=False),
    "4.9.7": _apache_4,
}


def write_tools_keys(home: Path, key: str, secret: str) -> Path:
    """Writes the keys with which `mqadmin` signs, and returns the file's path."""
    path = home / "conf" / "tools.yml"
    path.write_text(f"accessKey: {key}\nsecretKey: {secret}\n")
    return path


def member_requests() -> tuple[Command, Command]:
    """Returns the requests that make the user that the accounts have already."""
    user = {"username": MEMBER, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
    entries = [
        {"resource": "Topic:*", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
        {"resource": "Group:*", "actions": ["Sub"], "decision": "Allow"},
    ]
    policies = {"subject": f"User:{MEMBER}", "policies": [{"policyType": "Custom", "entries": entries}]}
    return CreateUser(MEMBER, user).to_command(), CreateAcl(f"User:{MEMBER}", policies).to_command()


def make_viewer(guarded: Guarded) -> str:
    """Makes a user that may look at everything, and nothing more; returns its name. The accounts have one already."""
    if not guarded.users:
        return READER
    name = fresh("viewer")
    user = {"username": name, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
    entries = [
        {"resource": resource, "actions": ["Sub", "Get", "List"], "decision": "Allow"}
        for resource in ("Topic:*", "Group:*", "Cluster:*")
    ]
    policies = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    for request in (CreateUser(name, user), CreateAcl(f"User:{name}", policies)):
        assert guarded.ask(request.to_command()).code == 0
    return name


def make_member(ask: Callable[[Command], Command]) -> None:
    """Makes that user, by requests that `ask` signs."""
    assert [ask(request).code for request in member_requests()] == [0, 0]


async def consume_all(client: Client, administrator: Client) -> None:
    """Runs a push and a lite pull consumer of a client: messages, a retry, and stored offsets.

    The topic is made by another client.
    """
    topic, group, seen, polled = fresh("guarded"), fresh("push"), Seen(), set[bytes]()
    seen.orders = {"again": [ConsumeLater(1)]}
    first = ConsumeFromWhere.FIRST_OFFSET
    async with Admin(client=administrator, timeout=20) as admin:
        await admin.create_topic(topic, queues=2)
    async with (
        Producer(fresh("senders"), client=client, send_timeout=20) as producer,
        LitePullConsumer(fresh("lite"), client=client, timeout=20, consume_from_where=first) as lite,
        PushConsumer(group, client=client, consume_from_where=first) as push,
        trio.open_nursery() as nursery,
    ):
        await producer.send(Message(topic, b"before"))
        await lite.subscribe(topic)
        await push.subscribe(topic)
        nursery.start_soon(push.run, seen)
        await producer.send(Message(topic, b"again"))
        await seen.wait(3)
        with trio.fail_after(30):
            while polled != {b"before", b"again"}:
                polled |= {message.body for message in await lite.poll(1.0)}
        await push.stop(5)
    assert sorted(seen.bodies) == ["again", "again", "before"]
    async with PullConsumer(group, client=client, timeout=20) as consumer:
        stored = await consumer.committed_offsets(await consumer.message_queues(topic))
    assert sum(offset or 0 for offset in stored.values()) == 2
