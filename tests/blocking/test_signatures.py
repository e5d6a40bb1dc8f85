"""The blocking faces have the same names and arguments as the trio ones, and neither has more than the other."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pyrmq_core
from pyrmq_core import blocking, embedded
from pyrmq_core.client.admin.servers import AdminFamily

FACES = [
    "Admin",
    "Client",
    "EmbeddedCluster",
    "LitePullConsumer",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SendWindow",
]
# A blocking object can also be opened and closed by hand.
ONLY_BLOCKING = {"open", "close", "send_async"}
INTERNAL = {
    "SendWindow": {"abandon", "enter_nowait", "hand_over", "interrupted", "start_more", "wait_for_room"},
}


def with_loop(face: str) -> Any:
    """Returns the trio class of this name."""
    return getattr(embedded if face == "EmbeddedCluster" else pyrmq_core, face)


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
        shared = members_of(with_loop(face)) & members_of(getattr(blocking, face))
        methods += [(face, name) for name in sorted(shared) if callable(getattr(with_loop(face), name, None))]
    return methods


@pytest.mark.parametrize("face", [face for face in FACES if face != "SendWindow"])
def test_both_are_made_with_the_same_arguments(face: str) -> None:
    assert parameters_of(getattr(blocking, face).__init__) == parameters_of(with_loop(face).__init__)


@pytest.mark.parametrize("face", FACES)
def test_both_have_the_same_names(face: str) -> None:
    internal = INTERNAL.get(face, set())
    trio_names = members_of(with_loop(face)) - internal
    blocking_names = members_of(getattr(blocking, face)) - internal - ONLY_BLOCKING
    assert blocking_names == trio_names


@pytest.mark.parametrize(("face", "name"), pairs())
def test_both_take_the_same_arguments(face: str, name: str) -> None:
    without = getattr(getattr(blocking, face), name)
    assert parameters_of(without) == parameters_of(getattr(with_loop(face), name))
    assert not inspect.iscoroutinefunction(without)
    assert without.__doc__, f"blocking.{face}.{name} says nothing of itself"


# Methods whose blocking form does something else than the trio one, which its docstring describes.
OWN_DOCSTRINGS = {
    ("LitePullConsumer", "poll"),  # Ctrl-C in place of cancellation
    ("Producer", "send_batch_soon"),  # a future
    ("Producer", "send_in_transaction"),  # the function runs in the caller's thread
    ("Producer", "send_soon"),  # a future
    ("PopConsumer", "run"),  # plain handlers in threads, and signals
    ("PopConsumer", "stop"),  # handlers in threads cannot be cancelled
    ("PushConsumer", "deliveries"),  # `with`
    ("PushConsumer", "run"),  # plain handlers in threads, and signals
    ("PushConsumer", "stop"),  # handlers in threads cannot be cancelled
}


@pytest.mark.parametrize(("face", "name"), pairs())
def test_both_have_the_same_docstring(face: str, name: str) -> None:
    texts = [inspect.getdoc(getattr(kind, name)) for kind in (getattr(blocking, face), with_loop(face))]
    assert (texts[0] == texts[1]) != ((face, name) in OWN_DOCSTRINGS)


def test_the_comparison_compares_something() -> None:
    assert len(pairs()) >= 20


ADMINS = {face: face.Admin(nameserver="127.0.0.1:1") for face in (pyrmq_core, blocking)}
FAMILIES = [name for name, member in vars(pyrmq_core.Admin).items() if isinstance(member, property)]


def family_of(face: Any, name: str) -> type[Any]:
    return type(getattr(ADMINS[face], name))


@pytest.mark.parametrize("family", FAMILIES)
def test_both_have_the_same_methods_in_each_family_of_admin(family: str) -> None:
    with_trio, without = family_of(pyrmq_core, family), family_of(blocking, family)
    assert issubclass(with_trio, AdminFamily)
    assert members_of(without) == members_of(with_trio) != set()
    assert without.__doc__


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family in FAMILIES for name in sorted(members_of(family_of(pyrmq_core, family)))],
)
def test_both_take_the_same_arguments_in_each_family_of_admin(family: str, name: str) -> None:
    with_trio, without = (getattr(family_of(face, family), name) for face in (pyrmq_core, blocking))
    assert parameters_of(without) == parameters_of(with_trio)
    assert inspect.iscoroutinefunction(with_trio)
    assert not inspect.iscoroutinefunction(without)
    assert without.__doc__
    assert without.__doc__ == with_trio.__doc__


def test_admin_has_families() -> None:
    assert "topics" in FAMILIES
