"""Boots a controller of Apache RocketMQ 5.4.0 and two brokers, of which it elects a master when one is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from tests.support.apache import NO_TLS, ApacheBroker, ApacheServer, ask, boot_cluster
from tests.support.jvm import JavaFailed

VERSION = "5.4.0"
BROKER = "broker-a"
PAIR_SECONDS = 90.0
POLL_SECONDS = 0.1
MEMORY = ("-Xms64m", "-Xmx256m")
GET_METADATA, GET_SYNC_STATE = 1005, 1006  # CONTROLLER_GET_METADATA_INFO, CONTROLLER_GET_SYNC_STATE_DATA


class ApacheController(ApacheServer):
    """ControllerStartup, alone in its group. Brokers use the port that its entry among the peers names."""

    port_offsets = (0, 1)

    def __init__(self, home: Path) -> None:
        main = "org.apache.rocketmq.controller.ControllerStartup"
        super().__init__("controller", VERSION, main, home, {}, (*MEMORY, NO_TLS))
        self.brokers_address = f"127.0.0.1:{self.port + 1}"
        self._may_move = False
        self.settings |= {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.brokers_address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(home / "log"),
            "bindAddress": "127.0.0.1",
            "scanNotActiveBrokerInterval": "2000",
        }

    def is_ready(self) -> bool:
        return ask(self.brokers_address, Command(GET_METADATA)).ext.get("isLeader") == "true"

    def replicas(self) -> Mapping[str, object]:
        """Returns the master's address of the pair, and the brokers that follow it (BrokerReplicasInfo.java)."""
        body = json.dumps([BROKER]).encode()
        answer = ask(self.brokers_address, Command(GET_SYNC_STATE, body=body))
        table = load_object(answer.body, "the state of a controller's brokers")["replicasInfoTable"]
        replicas: Mapping[str, object] = table.get(BROKER) or {}
        return replicas


@dataclass(frozen=True, slots=True)
class ControlledPair:
    """Two brokers of one name, by their addresses."""

    nameserver: str
    controller: ApacheController
    brokers: Mapping[str, ApacheBroker]

    def wait_for_master(self) -> ApacheBroker:
        """Returns the master, once the other broker has all that it has, so that it may take its place."""
        deadline = time.monotonic() + PAIR_SECONDS
        while len(in_sync := self.controller.replicas().get("inSyncReplicas") or ()) < len(self.brokers):  # type: ignore[arg-type]
            if time.monotonic() > deadline:
                raise JavaFailed(f"the controller has {in_sync} as replicas of {BROKER} after {PAIR_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return self.brokers[str(self.controller.replicas()["masterAddress"])]


@contextmanager
def boot_controlled_pair() -> Iterator[ControlledPair]:
    """Yields a NameServer, a controller, a master and its slave; kills all on leaving.

    A message is acknowledged when both brokers have it (`allAckInSyncStateSet`).
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(boot_cluster(VERSION, ()))
        controller = ApacheController(cluster.home / "controller")
        stack.callback(controller.kill)
        controller.start()
        settings = {
            "brokerName": BROKER,
            "enableControllerMode": "true",
            "controllerAddr": controller.brokers_address,
            "allAckInSyncStateSet": "true",
            "brokerRole": "SLAVE",  # which one is the master is the controller's choice
        }
        brokers = []
        for name in ("one", "two"):
            broker = ApacheBroker(name, VERSION, cluster.nameserver.address, cluster.home / name, settings, ())
            stack.callback(broker.kill)
            broker.launch()
            brokers.append(broker)
        for broker in brokers:
            broker.wait_until_ready()
        yield ControlledPair(cluster.nameserver.address, controller, {broker.address: broker for broker in brokers})
