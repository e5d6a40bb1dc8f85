"""The blocking `Admin`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.admin.admin import TIMEOUT_SECONDS
from pyrmq_core.client.admin.admin import Admin as AsyncAdmin
from pyrmq_core.client.arguments import instance_of
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import TopicRouteData


class Admin(BlockingFace[AsyncAdmin]):
    """The blocking form of `pyrmq_core.Admin`; `client` is a blocking one."""

    def __init__(
        self,
        *,
        client: Client | None = None,
        nameserver: str | Sequence[str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__()
        self._client = client
        self._nameserver = nameserver
        self._timeout = timeout
        if client is not None:
            instance_of("client", client, Client, "a pyrmq_core.blocking.Client")
        else:
            self._make()  # wrong arguments raise now, not at the first call

    def __repr__(self) -> str:
        return "<blocking Admin>"

    def _make(self) -> AsyncAdmin:
        shared = None if self._client is None else self._client._async()
        return AsyncAdmin(client=shared, nameserver=self._nameserver, timeout=self._timeout)

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

    def topics(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """Returns all topics that the NameServer knows, or those of one cluster; sorted."""
        return self._run(lambda admin: admin.topics(cluster=cluster))

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
