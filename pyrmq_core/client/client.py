"""`Client`: connections, routes and heartbeats, which several producers and consumers can share.

A client lives as long as its `async with` block. Producers and consumers use its `ClientSession`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pyrmq_core.client.async_only import AsyncOnly
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.client_settings import ClientSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.service_state import ServiceState


class Client(AsyncOnly):
    """Connections, routes and heartbeats, which producers and consumers can share.

    `nameserver` is `"host:port;host:port"` or a list, by default the environment variable NAMESRV_ADDR. With
    `nameserver_url` instead, the client fetches the list from there, at the start and every 2 minutes. Times are
    seconds. `tls` is the context of every connection. Requests are signed when `access_key` and `secret_key` are set,
    after all `rpc_hooks`. `namespace_v2` is added to every request as header fields of 5.x. `unit_name` is appended to
    the client's id and, as RocketMQ's unit, to `nameserver_url`. `unit_mode` is set in every message.
    """

    @parameters_of(ClientSettings)
    def __init__(self, settings: ClientSettings) -> None:
        self._session = ClientSession(settings)

    @classmethod
    def _of(cls, settings: ClientSettings) -> Self:
        client = cls.__new__(cls)
        client._session = ClientSession(settings)
        return client

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def client_id(self) -> str:
        """The unique id by which brokers know this client: `ip@instance#...`."""
        return self._session.client_id

    @property
    def state(self) -> ServiceState:
        """The state of the client: just created, running, shut down, or start failed."""
        return self._session.state

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)
