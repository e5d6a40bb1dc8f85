"""The blocking `Admin`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyrmq_core.blocking.admin_families import (
    Accounts,
    Brokers,
    Groups,
    Messages,
    NameServers,
    Policies,
    Producers,
    Topics,
    Users,
)
from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.admin.admin import Admin as AsyncAdmin
from pyrmq_core.client.admin.settings import AdminSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.model import MessageExt, MessageQueue, Permission, TopicConfig
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import TopicRouteData


class Admin(BlockingFace[AsyncAdmin]):
    """The blocking form of `pyrmq_core.Admin`; `client` is a blocking one."""

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        super().__init__()
        self._settings = settings
        if settings.shared_client(Client, "pyrmq_core.blocking.Client") is None:
            self._make()  # wrong arguments raise now, not at the first call

    def __repr__(self) -> str:
        return "<blocking Admin>"

    def _make(self) -> AsyncAdmin:
        client = self._settings.client
        return AsyncAdmin._of(self._settings, None if client is None else client._async())

    @property
    def topics(self) -> Topics:
        """The family of topics; called, it returns their names."""
        return Topics(self, lambda admin: admin.topics)

    @property
    def users(self) -> Users:
        """The family of users (5.x)."""
        return Users(self, lambda admin: admin.users)

    @property
    def policies(self) -> Policies:
        """The family of policies about users (5.x)."""
        return Policies(self, lambda admin: admin.policies)

    @property
    def accounts(self) -> Accounts:
        """The family of accounts of `plain_acl.yml` (4.9)."""
        return Accounts(self, lambda admin: admin.accounts)

    @property
    def brokers(self) -> Brokers:
        """The family of brokers: their health, figures, settings and clean-up."""
        return Brokers(self, lambda admin: admin.brokers)

    @property
    def nameservers(self) -> NameServers:
        """The family of NameServers: their settings."""
        return NameServers(self, lambda admin: admin.nameservers)

    @property
    def groups(self) -> Groups:
        """The family of consumer groups."""
        return Groups(self, lambda admin: admin.groups)

    @property
    def messages(self) -> Messages:
        """The family of stored messages: look-ups, traces and dead letters."""
        return Messages(self, lambda admin: admin.messages)

    @property
    def producers(self) -> Producers:
        """The family of producers that are connected."""
        return Producers(self, lambda admin: admin.producers)

    def cluster_info(self) -> ClusterInfo:
        """Returns every broker with its addresses, and the brokers of each cluster."""
        return self._run(lambda admin: admin.cluster_info())

    def route(self, topic: str) -> TopicRouteData:
        """Returns the topic's route; raises `NoRoute` if no NameServer knows it."""
        return self._run(lambda admin: admin.route(topic))

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        cluster: str | None = None,
        batch: bool = False,
        order: bool = False,
        perm: int = Permission.READ | Permission.WRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Creates the topic with `queues` queues on every master, or changes it."""
        self._run(
            lambda admin: admin.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                cluster=cluster,
                batch=batch,
                order=order,
                perm=perm,
                attributes=attributes,
            )
        )

    def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """Returns the topic's settings by broker name."""
        return self._run(lambda admin: admin.topic_config(topic))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Deletes the topic with its messages on every master, then from every NameServer."""
        self._run(lambda admin: admin.delete_topic(topic, cluster=cluster))

    def kv_value(self, namespace: str, key: str) -> str | None:
        """Returns a value of KV configuration; None without one."""
        return self._run(lambda admin: admin.kv_value(namespace, key))

    def kv_values(self, namespace: str) -> dict[str, str]:
        """Returns all values of a namespace by key; empty without any."""
        return self._run(lambda admin: admin.kv_values(namespace))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Puts a value on every NameServer."""
        self._run(lambda admin: admin.put_kv(namespace, key, value))

    def delete_kv(self, namespace: str, key: str) -> None:
        """Deletes a value on every NameServer; a missing key is no error."""
        self._run(lambda admin: admin.delete_kv(namespace, key))

    def view_message(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """Returns the message with this `offset_msg_id`."""
        return self._run(lambda admin: admin.view_message(offset_msg_id, topic=topic))

    def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> tuple[MessageExt, ...]:
        """Returns messages that have `key` among their `keys`, stored from `begin` to `end`, oldest first."""
        return self._run(lambda admin: admin.query_message(topic, key, max_num=max_num, begin=begin, end=end))

    def query_message_by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """Returns the message with this `msg_id`, the producer's UNIQ_KEY; None if no broker of the topic has one."""
        return self._run(lambda admin: admin.query_message_by_unique_key(topic, unique_key))

    def earliest_msg_store_time(self, queue: MessageQueue) -> datetime | None:
        """Returns the store time of the oldest message that is kept; None for a queue without messages."""
        return self._run(lambda admin: admin.earliest_msg_store_time(queue))
