"""The blocking `EmbeddedCluster`: a NameServer and brokers in this process, for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from pyrmq_core.blocking.face import BlockingFace, blocking_form, blocking_form_of_function
from pyrmq_core.embedded import EmbeddedCluster as AsyncEmbeddedCluster
from pyrmq_core.model import TopicConfig


class EmbeddedCluster(BlockingFace[AsyncEmbeddedCluster]):
    """The blocking form of the trio cluster: `with EmbeddedCluster(brokers=2) as cluster: cluster.nameserver`."""

    def __init__(
        self,
        brokers: int | Sequence[str] = 1,
        *,
        slaves: int = 0,
        sync: bool = False,
        nameservers: int | Sequence[str] = 1,
        topics: Mapping[str, int | TopicConfig] | None = None,
        settings: Mapping[str, str] | None = None,
        nameserver_settings: Mapping[str, str] | None = None,
        port: int = 0,
        broker_port: int = 0,
        host: str = "127.0.0.1",
        forgetful: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._make_cluster = partial(
            AsyncEmbeddedCluster,
            brokers,
            slaves=slaves,
            sync=sync,
            nameservers=nameservers,
            topics=topics,
            settings=settings,
            nameserver_settings=nameserver_settings,
            port=port,
            broker_port=broker_port,
            host=host,
            forgetful=forgetful,
            directory=directory,
        )
        self._make()  # raises for wrong arguments now, instead of at the first call

    def __repr__(self) -> str:
        return "<blocking EmbeddedCluster>"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()  # ends in order after a failure too: brokers first, so that they can unregister

    def _make(self) -> AsyncEmbeddedCluster:
        return self._make_cluster()

    @property
    def nameserver(self) -> str:
        """The addresses of all NameServers, running or ended, as clients expect them: `host:port;host:port`."""
        return self._async().nameserver

    @property
    def nameservers(self) -> dict[str, str]:
        """The `host:port` of each running NameServer by its name."""
        return self._async().nameservers

    @property
    def brokers(self) -> dict[str, str]:
        """The `host:port` of each running master by its name."""
        return self._async().brokers

    @property
    def slaves(self) -> dict[str, str]:
        """The `host:port` of each running slave by its name."""
        return self._async().slaves

    @property
    def directory(self) -> Path:
        """The directory that holds the brokers' files."""
        return self._async().directory

    control = blocking_form_of_function(AsyncEmbeddedCluster.control)
    kill = blocking_form(AsyncEmbeddedCluster.kill)
    power_cut = blocking_form(AsyncEmbeddedCluster.power_cut)
    start = blocking_form(AsyncEmbeddedCluster.start)
    stop = blocking_form(AsyncEmbeddedCluster.stop)
    wait_for_slaves = blocking_form(AsyncEmbeddedCluster.wait_for_slaves)
