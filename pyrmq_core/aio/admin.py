"""The asyncio `Admin`: every method is the trio one, in its asyncio form; so are its families, whole."""

from __future__ import annotations

from pyrmq_core.aio.admin_families import AsyncioFamily
from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import asyncio_form
from pyrmq_core.client.admin.access import Accounts, Policies, Users
from pyrmq_core.client.admin.admin import Admin as TrioAdmin
from pyrmq_core.client.admin.admin import AdminSettings
from pyrmq_core.client.admin.brokers import Brokers
from pyrmq_core.client.admin.groups import Groups
from pyrmq_core.client.admin.messages import Messages
from pyrmq_core.client.admin.nameservers import NameServers
from pyrmq_core.client.admin.producers import Producers
from pyrmq_core.client.admin.topics import Topics
from pyrmq_core.client.parameters import parameters_of


class Admin(OwnerFace[TrioAdmin]):
    """The asyncio form of `pyrmq_core.Admin`; `client` is an asyncio one."""

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        super().__init__(TrioAdmin, settings)

    def __repr__(self) -> str:
        return "<asyncio Admin>"

    accounts = AsyncioFamily(Accounts, lambda admin: admin.accounts)
    brokers = AsyncioFamily(Brokers, lambda admin: admin.brokers)
    groups = AsyncioFamily(Groups, lambda admin: admin.groups)
    messages = AsyncioFamily(Messages, lambda admin: admin.messages)
    nameservers = AsyncioFamily(NameServers, lambda admin: admin.nameservers)
    policies = AsyncioFamily(Policies, lambda admin: admin.policies)
    producers = AsyncioFamily(Producers, lambda admin: admin.producers)
    topics = AsyncioFamily(Topics, lambda admin: admin.topics)
    users = AsyncioFamily(Users, lambda admin: admin.users)

    cluster_info = asyncio_form(TrioAdmin.cluster_info)
    create_topic = asyncio_form(TrioAdmin.create_topic)
    delete_kv = asyncio_form(TrioAdmin.delete_kv)
    delete_topic = asyncio_form(TrioAdmin.delete_topic)
    kv_value = asyncio_form(TrioAdmin.kv_value)
    kv_values = asyncio_form(TrioAdmin.kv_values)
    put_kv = asyncio_form(TrioAdmin.put_kv)
    route = asyncio_form(TrioAdmin.route)
    topic_config = asyncio_form(TrioAdmin.topic_config)
