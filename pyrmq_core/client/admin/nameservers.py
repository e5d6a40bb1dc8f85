"""`Admin.nameservers`: the settings of NameServers, each of which has its own."""

from __future__ import annotations

from collections.abc import Mapping

from pyrmq_core.client.admin.default_settings import NAMESERVER_DEFAULTS
from pyrmq_core.client.admin.servers import AdminFamily, Gathered, Server
from pyrmq_core.client.admin.settings_tables import SettingsTable, settings_table
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.requests.nameserver.namesrv_config import (
    GetNamesrvConfig,
    NamesrvConfigText,
    UpdateNamesrvConfig,
)


class NameServers(AdminFamily):
    """Administration of the settings of NameServers, each of which has its own."""

    async def config(self) -> Gathered[dict[str, str]]:
        """Returns each NameServer's settings by its address. `failures` has the errors of those that did not answer."""

        async def ask(server: Server) -> dict[str, str]:
            answer = await self._servers.ask(server, GetNamesrvConfig().to_command())
            return dict(NamesrvConfigText.from_command(answer).settings)

        return await self._servers.gather(await self._all(), ask)

    async def settings(self) -> SettingsTable:
        """Returns a table of all NameServers' settings, with RocketMQ's defaults."""
        gathered = await self.config()
        defaults = dict.fromkeys(gathered.answers, NAMESERVER_DEFAULTS)
        return settings_table(gathered.answers, defaults, gathered.failures)

    async def update_config(self, settings: Mapping[str, str]) -> None:
        """Changes settings of every NameServer. A failure at one does not stop the change at the others.

        Raises `InvalidArgument`, and changes nothing, for a name that a NameServer does not list, since RocketMQ
        ignores unknown names.
        """
        if not settings:
            raise InvalidArgument("settings is empty; it has one name with its value at least")
        for address, config in (await self.config()).answers.items():
            if unknown := sorted(settings.keys() - config.keys()):
                raise InvalidArgument(f"NameServer {address} lists no setting {', '.join(unknown)}; nothing is changed")
        await self._servers.change_nameservers(UpdateNamesrvConfig(settings).to_command(), ", ".join(sorted(settings)))

    async def _all(self) -> tuple[Server, ...]:
        nameservers = self._servers.session.nameservers
        if not nameservers.addresses:
            # Without a NameServer this raises an error that says how to set one.
            await nameservers.ask(GetNamesrvConfig().to_command(), timeout=self._servers.timeout)
        return tuple(Server(address, address) for address in nameservers.addresses)
