"""The asyncio `Admin`: every method is the trio one, lent to the library's loop; so are its families, whole."""

from __future__ import annotations

from functools import partial

from pyrmq_core.aio.admin_families import LentFamily
from pyrmq_core.aio.client import Client
from pyrmq_core.aio.face import AsyncioFace, lent
from pyrmq_core.client.admin.access import Accounts, Policies, Users
from pyrmq_core.client.admin.admin import Admin as TrioAdmin
from pyrmq_core.client.admin.brokers import Brokers
from pyrmq_core.client.admin.groups import Groups
from pyrmq_core.client.admin.messages import Messages
from pyrmq_core.client.admin.nameservers import NameServers
from pyrmq_core.client.admin.producers import Producers
from pyrmq_core.client.admin.settings import AdminSettings
from pyrmq_core.client.admin.topics import Topics
from pyrmq_core.client.parameters import parameters_of


class Admin(AsyncioFace[TrioAdmin]):
    """The asyncio form of `pyrmq_core.Admin`; `client` is an asyncio one."""

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        super().__init__(partial(TrioAdmin._of, settings), settings.shared_client(Client, "pyrmq_core.aio.Client"))

    def __repr__(self) -> str:
        return "<asyncio Admin>"

    accounts = LentFamily(Accounts, lambda admin: admin.accounts)
    brokers = LentFamily(Brokers, lambda admin: admin.brokers)
    groups = LentFamily(Groups, lambda admin: admin.groups)
    messages = LentFamily(Messages, lambda admin: admin.messages)
    nameservers = LentFamily(NameServers, lambda admin: admin.nameservers)
    policies = LentFamily(Policies, lambda admin: admin.policies)
    producers = LentFamily(Producers, lambda admin: admin.producers)
    topics = LentFamily(Topics, lambda admin: admin.topics)
    users = LentFamily(Users, lambda admin: admin.users)

    cluster_info = lent(TrioAdmin.cluster_info)
    create_topic = lent(TrioAdmin.create_topic)
    delete_kv = lent(TrioAdmin.delete_kv)
    delete_topic = lent(TrioAdmin.delete_topic)
    kv_value = lent(TrioAdmin.kv_value)
    kv_values = lent(TrioAdmin.kv_values)
    put_kv = lent(TrioAdmin.put_kv)
    route = lent(TrioAdmin.route)
    topic_config = lent(TrioAdmin.topic_config)
