"""The blocking `EmbeddedCluster`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.embedded import Control, ControlFunction
from pyrmq_core.embedded import EmbeddedCluster as AsyncEmbeddedCluster
from pyrmq_core.model import TopicConfig


class EmbeddedCluster(BlockingFace[AsyncEmbeddedCluster]):
    """The blocking form of `pyrmq_core.embedded.EmbeddedCluster`.

    `with EmbeddedCluster(brokers=2) as cluster: cluster.nameserver`
    """

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
            host=host,
            forgetful=forgetful,
            directory=directory,
        )
        self._make()  # wrong arguments raise now

    def __repr__(self) -> str:
        return "<blocking EmbeddedCluster>"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()  # in order after a failure too: brokers first, while the NameServer still hears them

    def _make(self) -> AsyncEmbeddedCluster:
        return self._make_cluster()

    @property
    def nameserver(self) -> str:
        """The addresses of all NameServers, ended ones included, as clients take them: `host:port;host:port`."""
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
        """The directory of the stores."""
        return self._async().directory

    def control(
        self, code: int, function: ControlFunction, *, server: str | None = None, times: int | None = None
    ) -> Control:
        """Requests with this code go to `function` first; it is async and runs on the library's own loop."""
        return self._async().control(code, function, server=server, times=times)

    def kill(self, name: str) -> None:
        """Ends a broker or a NameServer as SIGKILL does."""
        self._run(lambda cluster: cluster.kill(name))

    def power_cut(self, name: str) -> None:
        """Ends a broker as a power failure does (needs `forgetful=True`)."""
        self._run(lambda cluster: cluster.power_cut(name))

    def stop(self, name: str) -> None:
        """Ends a broker or a NameServer in order, as SIGTERM does."""
        self._run(lambda cluster: cluster.stop(name))

    def start(self, name: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Starts a server that was ended, on its old port and files; returns when the brokers are registered.

        `settings` replace those that this broker had: brokerRole=ASYNC_MASTER and brokerId=0 make a slave the master.
        """
        self._run(lambda cluster: cluster.start(name, settings=settings))

    def wait_for_slaves(self, timeout: float = 10.0) -> None:
        """Waits until each running slave has what its master has now: messages, topics, groups, and their offsets."""
        self._run(lambda cluster: cluster.wait_for_slaves(timeout))
