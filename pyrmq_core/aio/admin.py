"""The asyncio `Admin`. Its methods, such as `Admin.route` and `Admin.topics.list`, are made from the trio `Admin`'s."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Generic, Self, TypeVar, overload

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import AsyncioFace, asyncio_form
from pyrmq_core.client.admin.access import Accounts, Policies, Users
from pyrmq_core.client.admin.admin import Admin as TrioAdmin
from pyrmq_core.client.admin.admin import AdminSettings
from pyrmq_core.client.admin.brokers import Brokers
from pyrmq_core.client.admin.groups import Groups
from pyrmq_core.client.admin.lite_topics import LiteTopics
from pyrmq_core.client.admin.messages import Messages
from pyrmq_core.client.admin.nameservers import NameServers
from pyrmq_core.client.admin.producers import Producers
from pyrmq_core.client.admin.servers import AdminFamily
from pyrmq_core.client.admin.topics import Topics
from pyrmq_core.client.parameters import parameters_of

F = TypeVar("F", bound=AdminFamily)


class AsyncioFamily(Generic[F]):
    """An attribute of the asyncio `Admin` that groups methods about one subject, such as `topics`.

    It returns an object with the methods of `kind`, the class of the same attribute of the trio `Admin`. Each method
    may be awaited in an asyncio program.
    """

    def __init__(self, kind: type[F], family_of: Callable[[TrioAdmin], F]) -> None:
        self.__doc__ = kind.__doc__
        self._kind = _asyncio_kind(kind, family_of)

    @overload
    def __get__(self, face: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, face: AsyncioFace[TrioAdmin], owner: type[Any]) -> F: ...
    def __get__(self, face: AsyncioFace[TrioAdmin] | None, owner: type[Any]) -> Self | F:
        return self if face is None else self._kind(face)


def _asyncio_kind(kind: type[F], family_of: Callable[[TrioAdmin], F]) -> Callable[[AsyncioFace[TrioAdmin]], F]:

    def initialise(self: Any, face: AsyncioFace[TrioAdmin]) -> None:
        self._face = face

    methods: dict[str, Any] = {"__init__": initialise, "__doc__": kind.__doc__, "__module__": __name__}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            if not inspect.iscoroutinefunction(method):
                raise TypeError(f"{kind.__name__}.{name} is no coroutine function, and has no asyncio form")
            methods[name] = _asyncio_method(method, family_of)
    return type(kind.__name__, (kind,), methods)


def _asyncio_method(
    method: Callable[..., Awaitable[object]], family_of: Callable[[TrioAdmin], object]
) -> Callable[..., Awaitable[object]]:
    @wraps(method)
    async def called(self: Any, /, *args: object, **kwargs: object) -> object:
        return await self._face._run(lambda admin: method(family_of(admin), *args, **kwargs))

    return called


class Admin(OwnerFace[TrioAdmin]):
    """The asyncio form of `pyrmq_core.Admin`. `client` is an asyncio `Client`."""

    @parameters_of(AdminSettings[Client])
    def __init__(self, settings: AdminSettings[Client]) -> None:
        super().__init__(TrioAdmin, settings)

    def __repr__(self) -> str:
        return "<asyncio Admin>"

    accounts = AsyncioFamily(Accounts, lambda admin: admin.accounts)
    brokers = AsyncioFamily(Brokers, lambda admin: admin.brokers)
    groups = AsyncioFamily(Groups, lambda admin: admin.groups)
    lite_topics = AsyncioFamily(LiteTopics, lambda admin: admin.lite_topics)
    messages = AsyncioFamily(Messages, lambda admin: admin.messages)
    nameservers = AsyncioFamily(NameServers, lambda admin: admin.nameservers)
    policies = AsyncioFamily(Policies, lambda admin: admin.policies)
    producers = AsyncioFamily(Producers, lambda admin: admin.producers)
    topics = AsyncioFamily(Topics, lambda admin: admin.topics)
    users = AsyncioFamily(Users, lambda admin: admin.users)

    cluster_info = asyncio_form(TrioAdmin.cluster_info)
    create_topic = asyncio_form(TrioAdmin.create_topic)
    preview_topic = asyncio_form(TrioAdmin.preview_topic)
    delete_kv = asyncio_form(TrioAdmin.delete_kv)
    delete_topic = asyncio_form(TrioAdmin.delete_topic)
    health = asyncio_form(TrioAdmin.health)
    kv_value = asyncio_form(TrioAdmin.kv_value)
    kv_values = asyncio_form(TrioAdmin.kv_values)
    put_kv = asyncio_form(TrioAdmin.put_kv)
    route = asyncio_form(TrioAdmin.route)
    topic_config = asyncio_form(TrioAdmin.topic_config)
