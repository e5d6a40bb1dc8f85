"""The public names: docs import no others, and the API page lists each package's."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyrmq_core
from pyrmq_core import aio, blocking

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PACKAGES = (
    "pyrmq_core",
    "pyrmq_core.blocking",
    "pyrmq_core.aio",
    "pyrmq_core.otel",
    "pyrmq_core.cloudevents",
    "pyrmq_core.columnar",
    "pyrmq_core.embedded",
    "pyrmq_core.servers.nameserver",
    "pyrmq_core.testing",
    "pyrmq_spark",
    "pyrmq_spark.cdc",
)


def faults(code: str) -> list[str]:
    """Returns the imports of ours that are not of a public package's public name."""
    private_names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            private_names += [alias.name for alias in node.names if ours(alias.name) and alias.name not in PACKAGES]
        elif isinstance(node, ast.ImportFrom) and ours(node.module or ""):
            public = importlib.import_module(node.module or "").__all__ if node.module in PACKAGES else ()
            inner = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in PACKAGES]
            private_names += [f"{node.module}.{name}" for name in inner if name not in public]
    return private_names


def ours(module: str) -> bool:
    return module.partition(".")[0] in ("pyrmq_core", "pyrmq_spark")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_public_names_only(page: Path) -> None:
    assert [fault for block in BLOCK.findall(page.read_text()) for fault in faults(block)] == []


@pytest.mark.parametrize(
    "code", ["from pyrmq_core.network import Peer", "import pyrmq_core.protocol", "from pyrmq_core import Sender"]
)
def test_an_internal_import_is_reported(code: str) -> None:
    assert faults(code)


def listed() -> dict[str, list[str]]:
    """Returns the names of each package on the API page, which stand in its lists."""
    sections = re.split(r"^## (.*)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        package: re.findall(r"`(\w+)`", " ".join(re.findall(r"^- .*\n(?:  .*\n)*", text, re.MULTILINE)))
        for package, text in zip(sections[::2], sections[1::2], strict=True)
    }


def test_the_page_has_every_package() -> None:
    assert tuple(listed()) == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_what_the_package_names(package: str) -> None:
    assert sorted(listed()[package]) == sorted(importlib.import_module(package).__all__)


# Each member that a user sees on a face; the blocking ones have `open` and `close` too.
CLIENT = {"client_id", "state"}
PRODUCER = {
    "begin_transaction",
    "end_transaction",
    "is_batch_topic",
    "message_queues",
    "open_window",
    "publish_info",
    "recall",
    "reply",
    "request",
    "send",
    "send_arrow",
    "send_batch",
    "send_batch_soon",
    "send_in_transaction",
    "send_oneway",
    "send_soon",
    "sending_topic",
    "state",
}
CONSUMER = {
    "check_sql",
    "cluster_info",
    "commit",
    "commit_offsets",
    "committed",
    "committed_offsets",
    "current_queues",
    "expected_brokers",
    "manifests",
    "infer_schema",
    "manifest_end",
    "max_offset",
    "max_offsets",
    "mean_sizes",
    "message_queues",
    "min_offset",
    "min_offsets",
    "offset_at",
    "offset_bounds",
    "offsets_at",
    "pull",
    "read",
    "read_arrow",
    "read_committed",
    "read_joined",
    "read_manifest",
    "read_ranges",
    "state",
    "topic_queues",
    "topics",
}
LITE_PULL = {
    "assign",
    "assigned_queues",
    "commit",
    "committed",
    "message_queues",
    "offset_for_timestamp",
    "on_topic_changed",
    "pause",
    "poll",
    "problems",
    "resume",
    "seek",
    "seek_to_begin",
    "seek_to_end",
    "state",
    "subscribe",
    "unsubscribe",
}
ADMIN = {
    "accounts",
    "policies",
    "users",
    "brokers",
    "cluster_info",
    "create_topic",
    "delete_kv",
    "delete_topic",
    "groups",
    "health",
    "kv_value",
    "kv_values",
    "lite_topics",
    "messages",
    "nameservers",
    "preview_topic",
    "producers",
    "put_kv",
    "route",
    "state",
    "topic_config",
    "topics",
}


@pytest.mark.parametrize(
    ("face", "members"),
    [
        (pyrmq_core.Client, CLIENT),
        (blocking.Client, CLIENT | {"close", "open"}),
        (aio.Client, CLIENT | {"close", "open"}),
        (pyrmq_core.Producer, PRODUCER),
        (blocking.Producer, PRODUCER | {"close", "open", "send_async"}),
        (aio.Producer, PRODUCER | {"close", "open"}),
        (pyrmq_core.PullConsumer, CONSUMER),
        (blocking.PullConsumer, CONSUMER | {"close", "open"}),
        (aio.PullConsumer, CONSUMER | {"close", "open"}),
        (pyrmq_core.LitePullConsumer, LITE_PULL),
        (blocking.LitePullConsumer, LITE_PULL | {"close", "open"}),
        (aio.LitePullConsumer, LITE_PULL | {"close", "open"}),
        (pyrmq_core.Admin, ADMIN),
        (blocking.Admin, ADMIN | {"close", "open"}),
        (aio.Admin, ADMIN | {"close", "open"}),
    ],
)
def test_a_face_shows_nothing_internal(face: type[Any], members: set[str]) -> None:
    assert {name for name in dir(face) if not name.startswith("_")} == members
    opened = vars(
        face("g", nameserver="127.0.0.1:1") if members > {"message_queues"} else face(nameserver="127.0.0.1:1")
    )
    assert {name for name in opened if not name.startswith("_")} <= {"group"}


def test_the_page_lists_the_methods_of_each_family_of_admin() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    rows = re.findall(r"^\| `admin\.(\w+)`: \S.* \| (.*) \|$", page, re.MULTILINE)
    shown = {f"{family}.{method}" for family, listed in rows for method in re.findall(r"`(\w+)`", listed)}
    admin = pyrmq_core.Admin(nameserver="127.0.0.1:1")
    families = {name for name, member in vars(pyrmq_core.Admin).items() if isinstance(member, property)}
    methods = {
        f"{family}.{name}" for family in families for name in dir(getattr(admin, family)) if not name.startswith("_")
    }
    assert shown == methods


def test_every_public_name_has_a_docstring() -> None:
    assert [name for package in PACKAGES for name in undocumented(importlib.import_module(package))] == []


def undocumented(package: ModuleType) -> list[str]:
    """Returns the public classes, functions and methods without a docstring; an alias of a type cannot have one."""
    paths = []
    for name in package.__all__:
        value = getattr(package, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        members = vars(value).items() if inspect.isclass(value) else ()
        functions = {f"{name}.{member}": _function(inner) for member, inner in members if not member.startswith("_")}
        paths += [
            f"{package.__name__}.{path}"
            for path, member in {name: value, **functions}.items()
            if callable(member) and not inspect.getdoc(member)
        ]
    return paths


def _function(member: object) -> object:
    return member.fget if isinstance(member, property) else getattr(member, "__func__", member)


def test_a_member_without_a_docstring_is_reported() -> None:
    class Bare:
        """A class of a package."""

        def member(self) -> None: ...

    package = ModuleType("package")
    package.Bare = Bare  # type: ignore[attr-defined]  # as a package has its names
    package.__all__ = ["Bare"]  # type: ignore[attr-defined]
    assert undocumented(package) == ["package.Bare.member"]


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert pyrmq_core.__version__ == version("pyrmq-spark")
