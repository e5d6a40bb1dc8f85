"""Administration of 4.9's access control by plain_acl.yml: put (50) or remove (51) an account, read versions (52), set
white addresses (53), and read all accounts (54).

White addresses are IP addresses whose requests need no signature. The answers to requests 50, 51 and 53 have only a
code. 5.x has users and policies instead (`users.py`).
Sources: common/protocol/header/CreateAccessConfigRequestHeader.java, DeleteAccessConfigRequestHeader.java,
UpdateGlobalWhiteAddrsConfigRequestHeader.java, GetBrokerAclConfigResponseHeader.java,
GetBrokerClusterAclConfigResponseBody.java (4.9.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse
from pyrmq_core.protocol.java.json_text import dumps


@dataclass(frozen=True, slots=True)
class UpdateAclConfig(HeaderRequest):
    """A request to add or change an account. A list field has `name=permission` entries, separated by commas."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    access_key: str = wire("accessKey")
    secret_key: str | None = wire("secretKey", None)
    white_remote_address: str | None = wire("whiteRemoteAddress", None)
    admin: bool = wire("admin", False)
    default_topic_perm: str | None = wire("defaultTopicPerm", None)
    default_group_perm: str | None = wire("defaultGroupPerm", None)
    topic_perms: str | None = wire("topicPerms", None)
    group_perms: str | None = wire("groupPerms", None)


@dataclass(frozen=True, slots=True)
class DeleteAclConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.DELETE_ACL_CONFIG
    access_key: str = wire("accessKey")


@dataclass(frozen=True, slots=True)
class UpdateWhiteAddresses(HeaderRequest):
    """A request to set the global white addresses in an account file, by default plain_acl.yml.

    `white_addresses` has the addresses, separated by commas.
    """

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    white_addresses: str = wire("globalWhiteAddrs")
    file: str | None = wire("aclFileFullPath", None)


@dataclass(frozen=True, slots=True)
class GetAclConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG


@dataclass(frozen=True, slots=True)
class GetAclVersion(HeaderRequest):
    """A request for the versions of the broker's account files."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


@dataclass(frozen=True, slots=True)
class AclVersion(HeaderResponse):
    """The answer to `GetAclVersion`: the version of plain_acl.yml, and a JSON object of versions by file."""

    version: str = wire("version")
    all_versions: str = wire("allAclFileVersion")
    broker_name: str = wire("brokerName")
    broker_address: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")


def acl_config(white_addresses: Sequence[str], accounts: Sequence[Mapping[str, Any]]) -> Command:
    """Returns the answer to `GetAclConfig`: all global white addresses and accounts, with their secrets."""
    return success(body=dumps({"globalWhiteAddrs": list(white_addresses), "plainAccessConfigs": list(accounts)}))
