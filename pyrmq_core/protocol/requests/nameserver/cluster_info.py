"""GET_BROKER_CLUSTER_INFO (106) and GET_BROKER_MEMBER_GROUP (901): the brokers that a NameServer knows.

Java writes broker ids here as JSON keys without quotes. This library writes quotes, which every fastjson reads. A
NameServer of 4.9 does not answer request 901 at all.
Sources: remoting/protocol/body/ClusterInfo.java, BrokerMemberGroup.java,
GetBrokerMemberGroupResponseBody.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.routes.route import BrokerData, broker_addresses


@dataclass(frozen=True, slots=True)
class GetClusterInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_INFO


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The answer to `GetClusterInfo`: brokers by name, and each cluster's broker names."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, tuple[str, ...]]

    def to_command(self) -> Command:
        brokers = {name: broker.to_members() for name, broker in self.broker_addr_table.items()}
        clusters = {cluster: list(names) for cluster, names in self.cluster_addr_table.items()}
        return success(body=dumps({"brokerAddrTable": brokers, "clusterAddrTable": clusters}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "cluster information")
        try:
            brokers = (members.get("brokerAddrTable") or {}).items()
            clusters = (members.get("clusterAddrTable") or {}).items()
            return cls(
                broker_addr_table={name: BrokerData.from_members(broker) for name, broker in brokers},
                cluster_addr_table={cluster: tuple(names) for cluster, names in clusters},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"cluster information: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class GetBrokerMemberGroup(HeaderRequest):
    """A request for the addresses of the brokers with one name. For an unknown name the answer has none."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_MEMBER_GROUP
    broker_name: str = wire("brokerName")
    cluster_name: str = wire("clusterName", "")


@dataclass(frozen=True, slots=True)
class BrokerMemberGroup:
    """The answer to `GetBrokerMemberGroup`: addresses by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    def to_command(self) -> Command:
        group = {"brokerAddrs": dict(self.broker_addrs), "brokerName": self.broker_name, "cluster": self.cluster}
        return success(body=dumps({"brokerMemberGroup": group}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "broker member group")
        try:
            group = members["brokerMemberGroup"]
            return cls(
                cluster=str(group.get("cluster", "")),
                broker_name=str(group["brokerName"]),
                broker_addrs=broker_addresses(group["brokerAddrs"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"broker member group: a member is missing or of the wrong type: {error!r}") from error
