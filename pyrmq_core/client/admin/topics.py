"""`Admin.topics`: the topics that NameServers and brokers know."""

from __future__ import annotations

from pyrmq_core.client.admin.family import AdminFamily
from pyrmq_core.protocol.messages.namespaces import is_reachable, without_namespace
from pyrmq_core.protocol.requests.nameserver.topic_lists import GetAllTopicList, GetTopicsByCluster, TopicList


class Topics(AdminFamily):
    """Administration of topics; calling it is the short form of `list`."""

    async def list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """Returns all topics that the NameServer knows, RocketMQ's own included, or those of one cluster; sorted.

        With a namespace, those of the namespace and RocketMQ's own.
        """
        query = GetAllTopicList() if cluster is None else GetTopicsByCluster(cluster)
        known = TopicList.from_command(await self._servers.ask_nameserver(query.to_command())).topics
        namespace = self._servers.namespace
        return tuple(sorted(without_namespace(topic, namespace) for topic in known if is_reachable(topic, namespace)))

    async def __call__(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """Returns the topics as `list` does."""
        return await self.list(cluster=cluster)
