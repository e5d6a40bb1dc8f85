"""The settings of a client. Names and defaults are those of client/ClientConfig.java, times are seconds."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

from pyrmq_core.client.arguments import context_of, instance_of, seconds_of, tuple_of
from pyrmq_core.client.remoting.identity import Credentials, checked_unit_name, credentials_of, namespace_of
from pyrmq_core.client.remoting.rpc_hooks import NamespaceV2, RpcHook, RpcHooks
from pyrmq_core.errors import InvalidArgument

AnyClient = TypeVar("AnyClient")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The parameters of the trio, blocking and asyncio `Client`."""

    _: KW_ONLY
    nameserver: str | Sequence[str] | None = None
    nameserver_url: str | None = None
    poll_nameserver_interval: float = 30.0
    heartbeat_broker_interval: float = 30.0
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    instance_name: str | None = None
    unit_name: str | None = None
    unit_mode: bool = False
    namespace_v2: str | None = None
    rpc_hooks: Sequence[RpcHook] = ()

    def __post_init__(self) -> None:
        if self.nameserver is not None and self.nameserver_url is not None:
            raise InvalidArgument("nameserver names addresses, nameserver_url says where to fetch them; give one")
        checked_unit_name(self.unit_name)
        seconds_of("poll_nameserver_interval", self.poll_nameserver_interval)
        seconds_of("heartbeat_broker_interval", self.heartbeat_broker_interval)
        context_of(self.tls)
        object.__setattr__(self, "rpc_hooks", tuple_of("rpc_hooks", self.rpc_hooks, "hooks"))

    def nameserver_or_environment(self) -> str | Sequence[str]:
        if self.nameserver is None and self.nameserver_url is None:
            return os.environ.get("NAMESRV_ADDR", "")
        return self.nameserver or ""

    def credentials(self) -> Credentials | None:
        return credentials_of(self.access_key, self.secret_key, self.security_token)

    def hooks(self) -> RpcHooks:
        """Returns the hooks around every request. The hook that adds `namespace_v2` runs first."""
        tenant = namespace_of(self.namespace_v2)
        return RpcHooks([*([NamespaceV2(tenant)] if tenant else []), *self.rpc_hooks])


@dataclass(frozen=True, kw_only=True)
class ClientChoice(Generic[AnyClient]):
    """The client that a producer or consumer uses: a shared `client`, or the settings for one that it opens itself."""

    client: AnyClient | None = None
    nameserver: str | Sequence[str] | None = None
    instance_name: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        namespace_of(self.namespace)
        if self.client is not None and (self.nameserver is not None or self.instance_name is not None):
            raise InvalidArgument("a shared client has its own nameserver and instance_name; give either it or them")

    def shared_client(self, face: type[AnyClient], name: str) -> AnyClient | None:
        return None if self.client is None else instance_of("client", self.client, face, f"a {name}")

    def own_client(self) -> ClientSettings:
        return ClientSettings(nameserver=self.nameserver, instance_name=self.instance_name)
