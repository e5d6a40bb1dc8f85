"""The blocking `Admin`."""

from __future__ import annotations

from pyrmq_core.blocking.admin_families import (
    Accounts,
    Brokers,
    Groups,
    LiteTopics,
    Messages,
    NameServers,
    Policies,
    Producers,
    Topics,
    Users,
)
from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import blocking_form
from pyrmq_core.client.admin.admin import Admin as AsyncAdmin
from pyrmq_core.client.admin.admin import AdminSettings
from pyrmq_core.client.parameters import parameters_of


class Admin(OwnerFace[AsyncAdmin]):
    """The blocking form of `pyrmq_core.Admin`. `client` is a blocking `Client`."""

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        super().__init__(AsyncAdmin, settings)

    def __repr__(self) -> str:
        return "<blocking Admin>"

    @property
    def topics(self) -> Topics:
        """Methods about topics: their list, offsets, rates, permissions and order configurations."""
        return Topics(self, lambda admin: admin.topics)

    @property
    def users(self) -> Users:
        """Methods that list, create, change and delete users of access control (5.3 and later)."""
        return Users(self, lambda admin: admin.users)

    @property
    def policies(self) -> Policies:
        """Methods that list and change access policies: the actions allowed or denied to a user (5.3 and later)."""
        return Policies(self, lambda admin: admin.policies)

    @property
    def accounts(self) -> Accounts:
        """Methods that list and change the access accounts in the brokers' `plain_acl.yml` (before 5.3.3)."""
        return Accounts(self, lambda admin: admin.accounts)

    @property
    def brokers(self) -> Brokers:
        """Methods about brokers: their status, statistics and settings, and the removal of unused data."""
        return Brokers(self, lambda admin: admin.brokers)

    @property
    def nameservers(self) -> NameServers:
        """Methods that read and change the settings of NameServers."""
        return NameServers(self, lambda admin: admin.nameservers)

    @property
    def groups(self) -> Groups:
        """Methods about consumer groups: their members, settings, offsets and lag."""
        return Groups(self, lambda admin: admin.groups)

    @property
    def messages(self) -> Messages:
        """Methods about stored messages: look-ups by id and key, traces, and dead letters."""
        return Messages(self, lambda admin: admin.messages)

    @property
    def lite_topics(self) -> LiteTopics:
        """Methods about lite topics of 5.5: their number, offsets and subscribers, and the lag of groups."""
        return LiteTopics(self, lambda admin: admin.lite_topics)

    @property
    def producers(self) -> Producers:
        """Methods that list the producers which are connected to brokers."""
        return Producers(self, lambda admin: admin.producers)

    cluster_info = blocking_form(AsyncAdmin.cluster_info)
    create_topic = blocking_form(AsyncAdmin.create_topic)
    preview_topic = blocking_form(AsyncAdmin.preview_topic)
    delete_kv = blocking_form(AsyncAdmin.delete_kv)
    delete_topic = blocking_form(AsyncAdmin.delete_topic)
    health = blocking_form(AsyncAdmin.health)
    kv_value = blocking_form(AsyncAdmin.kv_value)
    kv_values = blocking_form(AsyncAdmin.kv_values)
    put_kv = blocking_form(AsyncAdmin.put_kv)
    route = blocking_form(AsyncAdmin.route)
    topic_config = blocking_form(AsyncAdmin.topic_config)
