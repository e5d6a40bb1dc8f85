"""The list of NameServers, fetched from a URL at the start, after 10 s, and then every 2 minutes.

Source: common/namesrv/DefaultTopAddressing.java, client/impl/MQClientAPIImpl.java (fetchNameServerAddr).
"""

from __future__ import annotations

import random
from typing import Final

import trio

from pyrmq_core.client.routes.name_servers import NameServers
from pyrmq_core.client.routing.name_server_choice import parse_nameservers
from pyrmq_core.errors import ProtocolError, RocketMQError
from pyrmq_core.network.http_get import check_url, fetch_text
from pyrmq_core.network.problems import Problems

TIMEOUT_SECONDS: Final = 3.0
FIRST_SECONDS: Final = 10.0
EVERY_SECONDS: Final = 120.0
FETCH: Final = "fetching the list of NameServers from"


class Discovery:
    """A reader of the NameServers' addresses from a web page, whose first line must be `host:port;host:port`.

    With a `unit_name`, the URL is `url-unit_name?nofix=1`, as in Java's client.
    """

    def __init__(self, url: str, problems: Problems, unit_name: str | None = None) -> None:
        check_url(url)
        self._problems = problems
        self.url = f"{url}-{unit_name}?nofix=1" if unit_name else url

    async def start(self, nursery: trio.Nursery, nameservers: NameServers) -> None:
        """Fetches the list once, and returns even if that fails. `nursery` runs the later fetches."""
        await self.fetch(nameservers)
        nursery.start_soon(self._keep_fetching, nameservers)

    async def fetch(self, nameservers: NameServers) -> None:
        try:
            text = await fetch_text(self.url, timeout=TIMEOUT_SECONDS)
            addresses = parse_nameservers(text.strip().splitlines()[0] if text.strip() else "")
            if not addresses:
                raise ProtocolError(f"{self.url}: the page is empty; the list that is known stays")
        except RocketMQError as error:
            self._problems.failed(FETCH, self.url, error)
            nameservers.none_named = (
                f"nameserver_url {self.url} names no NameServer: {error}; its first line has to be host:port;host:port"
            )
        else:
            self._problems.passed(FETCH, self.url)
            nameservers.set_addresses(addresses, random_start=random.getrandbits(31))

    async def _keep_fetching(self, nameservers: NameServers) -> None:
        await trio.sleep(FIRST_SECONDS)
        while True:
            await self.fetch(nameservers)
            await trio.sleep(EVERY_SECONDS)
