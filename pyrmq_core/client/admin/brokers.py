"""`Admin.brokers`: the brokers' status, statistics and settings, and the removal of unused data.

A broker is chosen by its name (its master, or the server with `broker_id`) or by an address `host:port`. Source:
tools/admin/DefaultMQAdminExtImpl.java, 5.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrmq_core.client.admin.chosen_brokers import chosen_brokers, every_address, one_broker, one_figure
from pyrmq_core.client.admin.default_settings import broker_defaults
from pyrmq_core.client.admin.html_tables import TableRows
from pyrmq_core.client.admin.servers import AdminFamily, Server, change_each
from pyrmq_core.client.admin.settings_tables import SettingsTable, settings_table
from pyrmq_core.client.admin.values import BrokerStatus
from pyrmq_core.client.query_many import query_many
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.requests.figures.broker_config import BrokerConfigText, GetBrokerConfig, UpdateBrokerConfig
from pyrmq_core.protocol.requests.figures.cleaning import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from pyrmq_core.protocol.requests.figures.ha_status import GetHaStatus, HaStatus
from pyrmq_core.protocol.requests.figures.runtime_info import GetRuntimeInfo, RuntimeInfo
from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats
from pyrmq_core.protocol.requests.nameserver.write_perm import (
    AddedWritePerm,
    AddWritePerm,
    WipedWritePerm,
    WipeWritePerm,
)


class Brokers(AdminFamily):
    """Administration of brokers: their status, statistics and settings, and the removal of unused data.

    `broker` is a broker's name or an address `host:port`. With a name, `broker_id` 0 is the master, and any other id a
    slave. Raises `InvalidArgument` for an unknown name, id or cluster.
    """

    async def list(self, *, cluster: str | None = None) -> tuple[BrokerStatus, ...]:
        """Returns the status of each registered address of a master or slave.

        If a broker does not answer, its status has the error.
        """

        async def status(server: Server) -> RuntimeInfo | RocketMQError:
            try:
                return await self._runtime_info(server)
            except RocketMQError as error:
                return error

        registered = await every_address(self._servers, cluster)
        statuses = await query_many((server for _, _, server in registered), status)
        rows = []
        for data, broker_id, server in registered:
            answer = statuses[server]
            info = answer if isinstance(answer, RuntimeInfo) else None
            error = None if isinstance(answer, RuntimeInfo) else answer
            rows.append(BrokerStatus(data.cluster, data.broker_name, broker_id, server.address, info, error))
        return TableRows(rows)

    async def runtime_info(self, broker: str, *, broker_id: int = 0) -> RuntimeInfo:
        """Returns the broker's report of its state. `table` has all values of the report, as texts."""
        return await self._runtime_info(await one_broker(self._servers, broker, broker_id))

    async def stats(self, broker: str, name: str, key: str, *, broker_id: int = 0) -> BrokerStats | None:
        """Returns a statistic over the last minute, hour and day, or None if the broker has none of this name and key.

        Names are RocketMQ's: `TOPIC_PUT_NUMS` and `TOPIC_PUT_SIZE` with a topic as the key, `GROUP_GET_NUMS` with
        `topic@group`, `BROKER_PUT_NUMS` with the cluster.
        """
        return await one_figure(self._servers, await one_broker(self._servers, broker, broker_id), name, key)

    async def ha_status(self, broker: str, *, broker_id: int = 0) -> HaStatus:
        """Returns a master's slaves, with the bytes that each lacks, or a slave's replication state (5.0 and later)."""
        server = await one_broker(self._servers, broker, broker_id)
        answer = await self._servers.ask(server, GetHaStatus().to_command(), "replication (5.0 and later)")
        return HaStatus.from_command(answer)

    async def config(self, broker: str, *, broker_id: int = 0) -> dict[str, str]:
        """Returns the broker's settings by RocketMQ's names."""
        server = await one_broker(self._servers, broker, broker_id)
        answer = await self._servers.ask(server, GetBrokerConfig().to_command())
        return dict(BrokerConfigText.from_command(answer).settings)

    async def settings(self, *, cluster: str | None = None) -> SettingsTable:
        """Returns a table of all brokers' settings, with RocketMQ's defaults. Secrets are hidden."""
        versions: dict[str, int] = {}

        async def ask(server: Server) -> Mapping[str, str]:
            answer = await self._servers.ask(server, GetBrokerConfig().to_command())
            versions[server.name] = answer.version
            return BrokerConfigText.from_command(answer).settings

        gathered = await self._servers.gather(
            [server for *_, server in await every_address(self._servers, cluster)], ask
        )
        defaults = {name: broker_defaults(versions[name]) for name in gathered.answers}
        return settings_table(gathered.answers, defaults, gathered.failures)

    async def update_config(
        self,
        settings: Mapping[str, str],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        force: bool = False,
    ) -> tuple[str, ...]:
        """Changes settings of one broker, of a cluster's masters, or of all masters. Returns the brokers' names.

        Raises `InvalidArgument`, and changes nothing, for a name that a broker does not list, since RocketMQ ignores
        unknown names. `force` skips this check, which is needed for settings without a value: Java's brokers do not
        list them. A failure at one broker does not stop the change at the others. The error has a note of the changed
        brokers.
        """
        if not settings:
            raise InvalidArgument("settings is empty; it has one name with its value at least")
        servers = await chosen_brokers(self._servers, broker, cluster)
        for server in () if force else servers:
            config = BrokerConfigText.from_command(await self._servers.ask(server, GetBrokerConfig().to_command()))
            if unknown := sorted(settings.keys() - config.settings.keys()):
                raise InvalidArgument(f"{server} lists no setting {', '.join(unknown)}; nothing is changed")
        command = UpdateBrokerConfig(settings).to_command()
        return await change_each(
            servers, lambda server: self._servers.ask(server, command, ", ".join(sorted(settings)))
        )

    async def clean_unused_topics(self, *, broker: str | None = None, cluster: str | None = None) -> tuple[str, ...]:
        """Makes brokers remove the queues of topics that they have no settings of. Returns the brokers' names.

        The brokers are the master named `broker`, the masters of `cluster`, or, without both, all masters.
        """
        return await self._clean(CleanUnusedTopic(), broker, cluster)

    async def clean_expired_queues(self, *, broker: str | None = None, cluster: str | None = None) -> tuple[str, ...]:
        """Makes brokers remove queue files whose messages are no longer in the log. Returns the brokers' names.

        The brokers are the master named `broker`, the masters of `cluster`, or, without both, all masters.
        """
        return await self._clean(CleanExpiredConsumeQueue(), broker, cluster)

    async def delete_expired_logs(self, *, broker: str | None = None, cluster: str | None = None) -> tuple[str, ...]:
        """Makes brokers delete expired commit log files now, instead of at the hour of their setting `deleteWhen`.

        The brokers are the master named `broker`, the masters of `cluster`, or, without both, all masters. Returns the
        brokers' names.
        """
        return await self._clean(DeleteExpiredCommitLog(), broker, cluster)

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Removes a broker's write permission at every NameServer. Returns its number of topics, by NameServer address.

        Producers stop using the broker once they have new routes. This lasts until `add_write_perm`, or until the
        topics of the broker change and it registers them again. Raises `InvalidArgument` for an unknown broker.
        """
        return await self._change_write_perm(WipeWritePerm(broker_name), WipedWritePerm, broker_name)

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Restores a broker's write permission at every NameServer.

        Returns the number of the broker's topics by the NameServer's address.
        """
        return await self._change_write_perm(AddWritePerm(broker_name), AddedWritePerm, broker_name)

    async def _runtime_info(self, server: Server) -> RuntimeInfo:
        return RuntimeInfo.from_command(await self._servers.ask(server, GetRuntimeInfo().to_command()))

    async def _clean(self, request: HeaderRequest, broker: str | None, cluster: str | None) -> tuple[str, ...]:
        servers = await chosen_brokers(self._servers, broker, cluster)
        return await change_each(servers, lambda server: self._servers.ask(server, request.to_command()))

    async def _change_write_perm(
        self,
        request: WipeWritePerm | AddWritePerm,
        answered: type[WipedWritePerm] | type[AddedWritePerm],
        broker_name: str,
    ) -> dict[str, int]:
        brokers = (await self._servers.cluster_info()).broker_addr_table
        if broker_name not in brokers:
            there = ", ".join(sorted(brokers)) or "none"
            raise InvalidArgument(f"no broker is named {broker_name}; the NameServer knows {there}")
        answers = await self._servers.change_nameservers(request.to_command(), f"broker {broker_name}")
        return {address: answered.from_command(answer).topics for address, answer in answers.items()}
