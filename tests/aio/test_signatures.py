"""The asyncio faces have the same names and arguments as the trio ones, and keep their types."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pyrmq_core
from pyrmq_core import MessageQueue, SendResult, aio
from pyrmq_core.aio.admin import AsyncioFamily
from pyrmq_core.client.admin.servers import AdminFamily
from tests.support.stage import Stage

FACES = ["Admin", "Client", "LitePullConsumer", "PopConsumer", "Producer", "PullConsumer", "PushConsumer", "SendWindow"]
# An asyncio object can also be opened and closed by hand.
ONLY_ASYNCIO = {"open", "close"}
INTERNAL = {
    "SendWindow": {"abandon", "enter_nowait", "hand_over", "interrupted", "start_more", "wait_for_room"},
}
# Plain methods of the trio face that need its loop.
AWAITED_HERE = {("LitePullConsumer", "pause"), ("LitePullConsumer", "resume")} | {
    ("PushConsumer", "suspend"),
    ("PushConsumer", "resume"),
}


def members_of(kind: type[Any]) -> set[str]:
    return {name for name in [*dir(kind), *inspect.get_annotations(kind)] if not name.startswith("_")}


def parameters_of(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
    ]


def pairs() -> list[tuple[str, str]]:
    methods = []
    for face in FACES:
        shared = members_of(getattr(pyrmq_core, face)) & members_of(getattr(aio, face))
        methods += [(face, name) for name in sorted(shared) if callable(getattr(getattr(pyrmq_core, face), name, None))]
    return methods


@pytest.mark.parametrize("face", [face for face in FACES if face != "SendWindow"])
def test_both_are_made_with_the_same_arguments(face: str) -> None:
    assert parameters_of(getattr(aio, face).__init__) == parameters_of(getattr(pyrmq_core, face).__init__)


@pytest.mark.parametrize("face", FACES)
def test_both_have_the_same_names(face: str) -> None:
    trio_names = members_of(getattr(pyrmq_core, face)) - INTERNAL.get(face, set())
    assert members_of(getattr(aio, face)) - ONLY_ASYNCIO == trio_names


@pytest.mark.parametrize(("face", "name"), pairs())
def test_both_take_the_same_arguments_and_are_awaited(face: str, name: str) -> None:
    ours, theirs = getattr(getattr(aio, face), name), getattr(getattr(pyrmq_core, face), name)
    assert parameters_of(ours) == parameters_of(theirs)
    awaited = inspect.iscoroutinefunction(theirs) or (face, name) in AWAITED_HERE
    assert inspect.iscoroutinefunction(ours) == awaited
    assert ours.__doc__, f"aio.{face}.{name} says nothing of itself"


# Methods whose asyncio form does something else than the trio one, which its docstring describes.
OWN_DOCSTRINGS = {
    ("LitePullConsumer", "poll"),  # a poll that is cancelled
    ("Producer", "send"),  # a send that is cancelled
    ("Producer", "send_batch_soon"),  # an asyncio future
    ("Producer", "send_in_transaction"),  # coroutine functions run in the task
    ("Producer", "send_soon"),  # an asyncio future
    ("PopConsumer", "run"),  # handlers on the asyncio loop
    ("PushConsumer", "deliveries"),  # a wait that is cancelled
    ("PushConsumer", "run"),  # handlers on the asyncio loop
    ("PushConsumer", "stop"),  # "at once" in a handler
    ("SendWindow", "put"),  # a wait that is cancelled
}


@pytest.mark.parametrize(("face", "name"), pairs())
def test_both_have_the_same_docstring(face: str, name: str) -> None:
    texts = [inspect.getdoc(getattr(getattr(module, face), name)) for module in (aio, pyrmq_core)]
    assert (texts[0] == texts[1]) != ((face, name) in OWN_DOCSTRINGS)


def test_the_comparison_compares_something() -> None:
    assert len(pairs()) >= 60


ADMIN = aio.Admin(nameserver="127.0.0.1:1")
FAMILIES = [name for name, member in vars(pyrmq_core.Admin).items() if isinstance(member, property)]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_of_admin_is_lent_whole(family: str) -> None:
    ours = type(getattr(ADMIN, family))
    (theirs,) = ours.__bases__
    methods = [name for name in members_of(theirs) if inspect.iscoroutinefunction(getattr(theirs, name))]
    assert methods
    for name in methods:
        method = vars(ours)[name]  # none is inherited: that would run under asyncio what is trio's
        assert inspect.iscoroutinefunction(method)
        assert parameters_of(method) == parameters_of(getattr(theirs, name))
        assert method.__doc__ == getattr(theirs, name).__doc__


def test_a_method_that_cannot_be_lent_is_refused() -> None:
    class Family(AdminFamily):
        def plain(self) -> None: ...

    with pytest.raises(TypeError, match=r"Family\.plain"):
        AsyncioFamily(Family, lambda admin: Family(admin._servers))


def test_types_are_kept(stage: Stage) -> None:
    """mypy checks the annotations here, and each `ignore` that it does not need is an error."""

    async def main() -> None:
        async with aio.Admin(nameserver=stage.nameserver.address) as admin:
            queues: int = len((await admin.route("orders")).queue_datas)
            assert queues == 2
            names: tuple[str, ...] = await admin.topics.list(cluster=None)
            assert "orders" in names
            with pytest.raises(TypeError, match="unknown"):
                await admin.topics.stats(unknown="orders")  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="topic"):
                await admin.route(topics="orders")  # type: ignore[call-arg]
        async with aio.Producer("g", nameserver=stage.nameserver.address) as producer:
            future: asyncio.Future[SendResult] = await producer.send_soon(pyrmq_core.Message("orders", b"x"))
            stored: bytes = (await future).msg_id  # type: ignore[assignment]
            message_queues: tuple[MessageQueue, ...] = await producer.message_queues("orders")
            assert len(stored) == 32
            assert len(message_queues) == 8

    asyncio.run(main())
