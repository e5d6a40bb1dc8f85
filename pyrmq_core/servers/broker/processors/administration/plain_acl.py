"""Requests 50 to 54, which change and show the accounts in the files of plain ACL, such as `plain_acl.yml`.

Source: broker/processor/AdminBrokerProcessor.java (updateAndCreateAccessConfig, ...), 4.9.7. With `aclEnable=false`
they are refused. Request 54 shows secrets, but only to administrators and exempt addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyrmq_core.errors import HeaderError, InvalidArgument, StoreError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.plain_acl import (
    AclVersion,
    DeleteAclConfig,
    UpdateAclConfig,
    UpdateWhiteAddresses,
    acl_config,
)
from pyrmq_core.servers.access import user_requests
from pyrmq_core.servers.access.control import AccessControl
from pyrmq_core.servers.access.plain.accounts import check_keys, text_of, texts_of
from pyrmq_core.servers.access.plain.permissions import check_entries
from pyrmq_core.servers.access.plain.rules import GLOBAL_ADDRESSES, entries_of
from pyrmq_core.servers.access.plain_files import PlainAcl
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings

OFF: Final = "aclEnable is false at this broker"
TEXTS: Final = ("accessKey", "secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
LISTS: Final = ("topicPerms", "groupPerms")


@dataclass(frozen=True, slots=True)
class AccessRequests:
    """The handlers of requests about accounts of `plain_acl.yml`, and about users and their policies."""

    access: AccessControl
    settings: LiveSettings
    identity: Identity

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.acl_version,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.all_accounts,
            **dict.fromkeys(user_requests.ABOUT, self.of_users),
        }

    def of_users(self, request: Command, _: Peer) -> Answer:
        return user_requests.answer(self.access.users, request)

    async def update_account(self, request: Command, _: Peer) -> Command:
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        if self.access.plain is None:
            return refusal(failed, OFF)
        try:
            await self.access.plain.put_account(_account(UpdateAclConfig.from_command(request)))
        except (InvalidArgument, StoreError, HeaderError) as error:
            return refusal(failed, str(error))
        return success()

    async def delete_account(self, request: Command, _: Peer) -> Command:
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        if self.access.plain is None:
            return refusal(failed, OFF)
        try:
            key = DeleteAclConfig.from_command(request).access_key
            if await self.access.plain.remove_account(key):
                return success()
        except (InvalidArgument, StoreError, HeaderError) as error:
            return refusal(failed, str(error))
        return refusal(failed, f"The accesskey[{key}] corresponding to accessConfig has been deleted failed.")

    async def update_white_addresses(self, request: Command, _: Peer) -> Command:
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        if self.access.plain is None:
            return refusal(failed, OFF)
        try:
            header = UpdateWhiteAddresses.from_command(request)
            addresses = [address for address in header.white_addresses.split(",") if address]
            if await self.access.plain.put_white_addresses(addresses, header.file or ""):
                return success()
        except (InvalidArgument, StoreError, HeaderError) as error:
            return refusal(failed, str(error))
        return refusal(failed, f"The globalWhiteAddresses[{header.white_addresses}] has been updated failed.")

    def acl_version(self, _request: Command, _: Peer) -> Command:
        acl = self.access.plain
        if acl is None:
            return refusal(ResponseCode.SYSTEM_ERROR, OFF)
        versions = {path: _version(*version) for path, version in acl.versions.items()}
        return AclVersion(
            version=dumps(versions.get(str(acl.default_file), _version(0, 0))).decode(),
            all_versions=dumps(versions).decode(),
            broker_name=self.settings.config.broker_name,
            broker_address=self.identity.address,
            cluster_name=self.settings.config.broker_cluster_name,
        ).to_command()

    def all_accounts(self, _request: Command, _: Peer) -> Command:
        if self.access.plain is None:
            return refusal(ResponseCode.SYSTEM_ERROR, OFF)
        return _all_accounts(self.access.plain)


def _account(header: UpdateAclConfig) -> dict[str, Any]:
    check_keys(header.access_key, header.secret_key)
    account: dict[str, Any] = {
        "accessKey": header.access_key,
        "secretKey": header.secret_key,
        "whiteRemoteAddress": header.white_remote_address,
        "admin": header.admin,
        "defaultTopicPerm": header.default_topic_perm or None,
        "defaultGroupPerm": header.default_group_perm or None,
    }
    for name, text in (("topicPerms", header.topic_perms), ("groupPerms", header.group_perms)):
        if text is not None:
            account[name] = [entry for entry in text.split(",") if entry]
            check_entries(account[name])
    return {name: value for name, value in account.items() if value is not None}


def _version(counter: int, timestamp_ms: int) -> dict[str, int]:
    return {"counter": counter, "timestamp": timestamp_ms}


def _all_accounts(acl: PlainAcl) -> Command:
    addresses: list[str] = []
    accounts: dict[str | None, dict[str, Any]] = {}
    for document in acl.documents.values():
        addresses += texts_of(document, GLOBAL_ADDRESSES)
        for entry in entries_of(document):
            texts = {name: text for name in TEXTS if (text := text_of(entry, name)) is not None}
            lists = {name: texts_of(entry, name) for name in LISTS if entry.get(name) is not None}
            key = texts["accessKey"]
            accounts.setdefault(key, {**texts, **lists, "admin": acl.rules.accounts[key].is_admin})
    return acl_config(addresses, list(accounts.values()))
