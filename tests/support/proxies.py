"""Boots the proxy of Apache RocketMQ 5.4.0 in cluster mode, in front of a cluster, on free loopback ports.

    with boot_cluster("5.4.0") as cluster, boot_proxy(cluster) as proxy:
        proxy.address        # its remoting port: the NameServer of clients, and every broker's address in routes
        proxy.grpc_address   # its gRPC port, which no client of this library can use

A proxy answers no administration: `administered` returns the NameServer behind it, for tests that make topics.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import ApacheCluster, ask, free_port
from tests.support.java_programs import java_environment, temporary_directory
from tests.support.jvm import JavaProcess
from tests.support.maven import POM, jars_of, java

VERSION = "5.4.0"
PROXY_POM = POM.with_name("pom-proxy.xml")
BOOT_SECONDS = 90.0
MEMORY = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")

_behind: dict[str, str] = {}


def administered(nameserver: str) -> str:
    """Returns the address for administration: that of the NameServer behind a proxy, or the same."""
    return _behind.get(nameserver, nameserver)


def topic_attributes(nameserver: str) -> dict[str, str]:
    """Returns the attributes of a test's topic: a proxy takes every type of message for it, as brokers do."""
    return {"message.type": "MIXED"} if nameserver in _behind else {}


class ApacheProxy:
    """ProxyStartup of 5.4.0 in cluster mode; `settings` are those of rmq-proxy.json."""

    def __init__(self, cluster: ApacheCluster, home: Path) -> None:
        self.port, self.grpc_port = free_port((0,)), free_port((0,))
        self.address, self.grpc_address = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.grpc_port}"
        self.settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": cluster.nameserver.address,
            "localServeAddr": "127.0.0.1",
            "remotingAccessAddr": "127.0.0.1",
            "remotingListenPort": self.port,
            "grpcServerPort": self.grpc_port,
            "enableRemotingLocalProxyGrpc": False,
            # Topics and routes that change are seen soon (20 s by default).
            "topicRouteServiceCacheRefreshSeconds": 1,
            "topicConfigCacheRefreshSeconds": 1,
        }
        self._file = home / "conf" / "rmq-proxy.json"
        properties = (f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}")
        classpath = f"{jars_of('rocketmq-proxy', VERSION, PROXY_POM)}/*"
        main = ("org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(self._file), "-pm", "cluster")
        command = [java(), *MEMORY, *properties, "-cp", classpath, *main]
        environment = java_environment() | {"RMQ_PROXY_HOME": str(home)}
        self.process = JavaProcess(f"proxy ({VERSION})", command, home / "output.log", environment)

    def start(self) -> None:
        """Boots it; returns when both ports answer."""
        self._file.write_text(json.dumps(self.settings))
        self.process.start()
        self.process.wait_until(self._has_booted, BOOT_SECONDS)

    def _has_booted(self) -> bool:
        if not self.process.wrote("startup successfully"):
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.grpc_port), 1):
                return bool(ask(self.address, Command(RequestCode.GET_BROKER_CLUSTER_INFO)).code)
        except OSError:
            return False


@contextmanager
def boot_proxy(cluster: ApacheCluster) -> Iterator[ApacheProxy]:
    """Yields a proxy in front of the cluster, and kills it on leaving."""
    with ExitStack() as stack:
        proxy = ApacheProxy(cluster, stack.enter_context(temporary_directory(VERSION)))
        stack.callback(proxy.process.kill)
        proxy.start()
        _behind[proxy.address] = cluster.nameserver.address
        stack.callback(_behind.pop, proxy.address)
        yield proxy
