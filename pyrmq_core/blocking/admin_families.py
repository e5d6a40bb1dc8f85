"""The blocking forms of `Admin`'s families of methods, such as `Admin.topics`, made from the trio methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pyrmq_core.blocking.face import BlockingFace, blocking_form
from pyrmq_core.client.admin.access import Accounts as AsyncAccounts
from pyrmq_core.client.admin.access import Policies as AsyncPolicies
from pyrmq_core.client.admin.access import Users as AsyncUsers
from pyrmq_core.client.admin.admin import Admin as AsyncAdmin
from pyrmq_core.client.admin.brokers import Brokers as AsyncBrokers
from pyrmq_core.client.admin.groups import Groups as AsyncGroups
from pyrmq_core.client.admin.lite_topics import LiteTopics as AsyncLiteTopics
from pyrmq_core.client.admin.messages import Messages as AsyncMessages
from pyrmq_core.client.admin.nameservers import NameServers as AsyncNameServers
from pyrmq_core.client.admin.producers import Producers as AsyncProducers
from pyrmq_core.client.admin.topics import Topics as AsyncTopics

F = TypeVar("F")
R = TypeVar("R")


class BlockingFamily(Generic[F]):
    """A family of `Admin`'s methods, such as `admin.topics`. Their first call opens the `Admin` if it is not open."""

    def __init__(self, face: BlockingFace[AsyncAdmin], family_of: Callable[[AsyncAdmin], F]) -> None:
        self._face = face
        self._family_of = family_of

    def _run(self, call: Callable[[F], Awaitable[R]]) -> R:
        return self._face._run(lambda admin: call(self._family_of(admin)))


class Brokers(BlockingFamily[AsyncBrokers]):
    """The blocking form of `pyrmq_core.Admin.brokers`."""

    list = blocking_form(AsyncBrokers.list)
    runtime_info = blocking_form(AsyncBrokers.runtime_info)
    stats = blocking_form(AsyncBrokers.stats)
    ha_status = blocking_form(AsyncBrokers.ha_status)
    config = blocking_form(AsyncBrokers.config)
    settings = blocking_form(AsyncBrokers.settings)
    update_config = blocking_form(AsyncBrokers.update_config)
    clean_unused_topics = blocking_form(AsyncBrokers.clean_unused_topics)
    clean_expired_queues = blocking_form(AsyncBrokers.clean_expired_queues)
    delete_expired_logs = blocking_form(AsyncBrokers.delete_expired_logs)
    wipe_write_perm = blocking_form(AsyncBrokers.wipe_write_perm)
    add_write_perm = blocking_form(AsyncBrokers.add_write_perm)


class NameServers(BlockingFamily[AsyncNameServers]):
    """The blocking form of `pyrmq_core.Admin.nameservers`."""

    config = blocking_form(AsyncNameServers.config)
    settings = blocking_form(AsyncNameServers.settings)
    update_config = blocking_form(AsyncNameServers.update_config)


class Topics(BlockingFamily[AsyncTopics]):
    """The blocking form of `pyrmq_core.Admin.topics`."""

    list = blocking_form(AsyncTopics.list)
    stats = blocking_form(AsyncTopics.stats)
    groups = blocking_form(AsyncTopics.groups)
    consumers = blocking_form(AsyncTopics.consumers)
    rates = blocking_form(AsyncTopics.rates)
    group_names = blocking_form(AsyncTopics.group_names)
    clusters = blocking_form(AsyncTopics.clusters)
    configs = blocking_form(AsyncTopics.configs)
    update_perm = blocking_form(AsyncTopics.update_perm)
    order = blocking_form(AsyncTopics.order)
    set_order = blocking_form(AsyncTopics.set_order)
    keep_order = blocking_form(AsyncTopics.keep_order)
    keep_manifest = blocking_form(AsyncTopics.keep_manifest)
    manifests = blocking_form(AsyncTopics.manifests)
    delete_order = blocking_form(AsyncTopics.delete_order)


class Groups(BlockingFamily[AsyncGroups]):
    """The blocking form of `pyrmq_core.Admin.groups`."""

    list = blocking_form(AsyncGroups.list)
    config = blocking_form(AsyncGroups.config)
    describe = blocking_form(AsyncGroups.describe)
    progress = blocking_form(AsyncGroups.progress)
    stack = blocking_form(AsyncGroups.stack)
    create = blocking_form(AsyncGroups.create)
    preview_create = blocking_form(AsyncGroups.preview_create)
    delete = blocking_form(AsyncGroups.delete)
    reset = blocking_form(AsyncGroups.reset)
    preview_reset = blocking_form(AsyncGroups.preview_reset)
    seek = blocking_form(AsyncGroups.seek)
    clone = blocking_form(AsyncGroups.clone)


class LiteTopics(BlockingFamily[AsyncLiteTopics]):
    """The blocking form of `pyrmq_core.Admin.lite_topics`."""

    brokers = blocking_form(AsyncLiteTopics.brokers)
    parent = blocking_form(AsyncLiteTopics.parent)
    info = blocking_form(AsyncLiteTopics.info)
    client = blocking_form(AsyncLiteTopics.client)
    group = blocking_form(AsyncLiteTopics.group)
    dispatch = blocking_form(AsyncLiteTopics.dispatch)


class Producers(BlockingFamily[AsyncProducers]):
    """The blocking form of `pyrmq_core.Admin.producers`."""

    list = blocking_form(AsyncProducers.list)
    members = blocking_form(AsyncProducers.members)


class Messages(BlockingFamily[AsyncMessages]):
    """The blocking form of `pyrmq_core.Admin.messages`."""

    by_id = blocking_form(AsyncMessages.by_id)
    by_key = blocking_form(AsyncMessages.by_key)
    by_unique_key = blocking_form(AsyncMessages.by_unique_key)
    track = blocking_form(AsyncMessages.track)
    trace = blocking_form(AsyncMessages.trace)
    dead_letters = blocking_form(AsyncMessages.dead_letters)
    resend = blocking_form(AsyncMessages.resend)
    consume_directly = blocking_form(AsyncMessages.consume_directly)
    earliest_store_time = blocking_form(AsyncMessages.earliest_store_time)


class Users(BlockingFamily[AsyncUsers]):
    """The blocking form of `pyrmq_core.Admin.users`."""

    create = blocking_form(AsyncUsers.create)
    update = blocking_form(AsyncUsers.update)
    delete = blocking_form(AsyncUsers.delete)
    list = blocking_form(AsyncUsers.list)


class Policies(BlockingFamily[AsyncPolicies]):
    """The blocking form of `pyrmq_core.Admin.policies`."""

    create = blocking_form(AsyncPolicies.create)
    update = blocking_form(AsyncPolicies.update)
    delete = blocking_form(AsyncPolicies.delete)
    list = blocking_form(AsyncPolicies.list)


class Accounts(BlockingFamily[AsyncAccounts]):
    """The blocking form of `pyrmq_core.Admin.accounts`."""

    put = blocking_form(AsyncAccounts.put)
    delete = blocking_form(AsyncAccounts.delete)
    set_white_addresses = blocking_form(AsyncAccounts.set_white_addresses)
    list = blocking_form(AsyncAccounts.list)
    versions = blocking_form(AsyncAccounts.versions)
