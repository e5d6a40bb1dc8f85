"""The blocking `Client`: connections, routes and heartbeats, shared by the producers and consumers given it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.client import Client as AsyncClient
from pyrmq_core.client.remoting.rpc_hooks import RpcHook
from pyrmq_core.client.service_state import ServiceState


class Client(BlockingFace[AsyncClient]):
    """As `pyrmq_core.Client`. Nothing touches the network before `open`, `with`, or the first use."""

    def __init__(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        nameserver_url: str | None = None,
        poll_nameserver_interval: float = 30.0,
        heartbeat_broker_interval: float = 30.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        tls: ssl.SSLContext | None = None,
        instance_name: str | None = None,
        unit_name: str | None = None,
        unit_mode: bool = False,
        namespace_v2: str | None = None,
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        super().__init__()
        # A lambda, because the repr of a partial shows what it holds: the secret key.
        self._make_client: Callable[[], AsyncClient] = lambda: AsyncClient(
            nameserver=nameserver,
            nameserver_url=nameserver_url,
            poll_nameserver_interval=poll_nameserver_interval,
            heartbeat_broker_interval=heartbeat_broker_interval,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            tls=tls,
            instance_name=instance_name,
            unit_name=unit_name,
            unit_mode=unit_mode,
            namespace_v2=namespace_v2,
            rpc_hooks=rpc_hooks,
        )
        self._named = repr(self._make_client())

    @property
    def client_id(self) -> str:
        """The id that brokers know this client by, once it is open; a child after `fork` has another one."""
        return self._async().client_id

    @property
    def state(self) -> ServiceState:
        return self._service_state()

    def __repr__(self) -> str:
        return f"<blocking {self._named}>"

    def _make(self) -> AsyncClient:
        return self._make_client()
