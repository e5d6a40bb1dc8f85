"""Hooks of the site's build: pages from outside `docs`, the reference of public names, and links between them."""

from __future__ import annotations

import importlib
import inspect
import itertools
import logging
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_type_hints

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks.site")

ROOT: Final = Path(__file__).parent.parent.parent
# Pages of the project's root, by their names on the site.
OUTSIDE: Final = {"README.md": "start.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
# What each example does, as the navigation names it: those of Spark, and those of Python.
EXAMPLES: Final = {
    "Spark": {
        "demo.py": "Write, read and stream flights",
        "sql_view.py": "Query a topic by SQL",
        "sql_insert.py": "INSERT INTO a topic",
        "time_range.py": "Read between two times",
        "json_bodies.py": "JSON bodies as columns",
        "topics_of_one_frame.py": "One frame to several topics",
        "windowed_count.py": "Count by windows of time",
        "joined_topics.py": "Join two topics",
        "each_batch.py": "foreachBatch, each batch once",
        "canal_upsert.py": "A table from Canal's changes",
        "resumed_query.py": "Start a query again",
        "pipeline/transformations/payments.py": "Declarative Pipelines",
        "change_pipeline/transformations/customers.py": "Declarative Pipelines: Auto CDC",
        "example_session.py": "The session of these examples",
    },
    "Python": {
        "asyncio_service.py": "A service with asyncio",
        "work_queue.py": "A work queue",
        "task_queue.py": "Tasks of taskiq",
        "exports.py": "Export jobs for cron",
        "airflow_dags/orders_by_hour.py": "A DAG of Airflow",
        "airflow_dags/order_arrived.py": "A DAG that a message starts",
    },
}
# Files of the project that pages link to and the site shows as text.
SHOWN_AS_TEXT: Final = ("LICENSE",)
# The packages with public names; each gets a page of its own, made from the docstrings.
PACKAGES: Final = (
    "pyrmq_core",
    "pyrmq_core.blocking",
    "pyrmq_core.aio",
    "pyrmq_core.otel",
    "pyrmq_core.cloudevents",
    "pyrmq_core.columnar",
    "pyrmq_core.embedded",
    "pyrmq_core.testing",
    "pyrmq_core.servers.nameserver",
    "pyrmq_spark",
    "pyrmq_spark.cdc",
)
# A word behind the language names the cluster that the tests run the block on.
MARKED_BLOCK: Final = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
# The tags by which a page loads something, and what they load.
LOADED: Final = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object|link(?![^>]*rel="?canonical))\b[^>]*?"""
    r"""\s(?:src|href|data|srcset)=["']?((?:https?:)?//[^"'\s>]+)"""
)
# Tables of so many columns are cards on a narrow screen (stylesheets/site.css).
CARD_COLUMNS: Final = 3
TABLE: Final = re.compile(r"<table>(.*?)</table>", re.DOTALL)
# Lines of an inventory of Sphinx's second form begin behind four lines of text.
INVENTORY_HEAD: Final = 4
LINK: Final = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the generated pages to the navigation: examples at the end of their parts, the API before the last part."""
    assert config.nav is not None
    for part, titles in EXAMPLES.items():
        pages = next(section[part] for section in config.nav if part in section)
        pages.append({"Examples": [{title: example_page(ROOT / "examples" / name)} for name, title in titles.items()]})
    config.nav.insert(-1, {"API": [{package: f"reference/{package}.md"} for package in PACKAGES]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in `docs`."""
    pages = {OUTSIDE[name]: (ROOT / name).read_text() for name in OUTSIDE}
    pages |= {f"reference/{package}.md": reference(package) for package in PACKAGES}
    for titles in EXAMPLES.values():
        for name, title in titles.items():
            path = ROOT / "examples" / name
            pages[example_page(path)] = f"# {title}\n\n`examples/{name}`\n\n```python\n{path.read_text()}```\n"
    for name in SHOWN_AS_TEXT:
        pages[f"{name}.md"] = f"# {name}\n\n```text\n{(ROOT / name).read_text()}\n```\n"
    for name, text in pages.items():
        file = File.generated(config, name, content=text)
        if name == "LICENSE.md":
            file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: object, config: MkDocsConfig, files: Files) -> str:
    """Points links at the site's pages: README lies beside docs in the project, and is a page of its own here."""
    del config, files
    path = page.file.src_uri  # type: ignore[attr-defined] # Page has it; its package names no type here
    outside = path in OUTSIDE.values()
    markdown = MARKED_BLOCK.sub(r"\1", markdown)
    return LINK.sub(lambda match: f"]({_target(match[1], outside)}{match[2] or ''})", markdown)


def on_page_content(html: str, page: object, config: MkDocsConfig, files: Files) -> str:
    """Names the column in each cell of a wide table, since a narrow screen has no room for its head."""
    del page, config, files
    return TABLE.sub(lambda match: _cards(match[0]), html)


def _cards(table: str) -> str:
    heads = [re.sub(r"<[^>]+>", "", head) for head in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
    if len(heads) < CARD_COLUMNS:
        return table
    labels = itertools.cycle(heads)
    labelled = re.sub(r"<td\b", lambda _: f'<td data-label="{next(labels)}"', table)
    return labelled.replace("<table>", '<table class="cards">')


def example_page(path: Path) -> str:
    """Returns the name of an example's page on the site."""
    return path.relative_to(ROOT).with_suffix(".md").as_posix()


@event_priority(-100)
def on_post_build(config: MkDocsConfig) -> None:
    """Warns of public names that the reference lacks, which ends a strict build."""
    *_, lines = (Path(config.site_dir) / "objects.inv").read_bytes().split(b"\n", INVENTORY_HEAD)
    listed = {line.split(" ")[0] for line in zlib.decompress(lines).decode().splitlines()}
    for package in PACKAGES:
        for name in sorted(documented(package) - listed):
            log.warning("the reference of %s lacks %s", package, name)


def on_post_page(output: str, page: object, config: MkDocsConfig) -> None:
    """Warns of what a page would load from another host, which ends a strict build."""
    del config
    for address in LOADED.findall(output):
        log.warning("%s loads %s from elsewhere", page.file.src_uri, address)  # type: ignore[attr-defined] # as above


def reference(package: str) -> str:
    """Returns the page of a package's public names, in the order of the alphabet, classes and functions alike."""
    parts = [f"# {package}"]
    for name in sorted(importlib.import_module(package).__all__, key=str.lower):
        parts.append(f"::: {package}.{name}")
        parts += _beside(package, name)
    return "\n\n".join(parts) + "\n"


def documented(package: str) -> set[str]:
    """Returns the paths of all that the reference of a package has to describe, or to link to."""
    module = importlib.import_module(package)
    names = {f"{package}.{name}" for name in module.__all__}
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            names |= {_path(package, name, member, function) for member, function in _members(value)}
    for family in families().values():
        names |= {f"{family.__module__}.{family.__qualname__}.{member}" for member, _ in _members(family)}
    return names


def families() -> dict[str, type]:
    """Returns the families of `Admin` by the names of its attributes."""
    admin = importlib.import_module("pyrmq_core").Admin
    base = importlib.import_module("pyrmq_core.client.admin.servers").AdminFamily
    kinds = {
        name: get_type_hints(value.fget)["return"] for name, value in vars(admin).items() if isinstance(value, property)
    }
    return {name: kind for name, kind in sorted(kinds.items()) if issubclass(kind, base)}


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties that the project defines, not those that Spark calls."""
    for member in dir(owner):
        value = inspect.getattr_static(owner, member)
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        spark = any(base.__module__.startswith("pyspark") and hasattr(base, member) for base in owner.__mro__)
        if not member.startswith("_") and inspect.isfunction(function) and not spark:
            yield member, function


def _path(package: str, name: str, member: str, function: Any) -> str:
    """Returns where a member is described: a derived one with the trio face, a second name with the first one."""
    if hasattr(function, "__wrapped__"):
        return f"pyrmq_core.{name}.{member}"
    return f"{package}.{name}.{function.__name__}"


def _beside(package: str, name: str) -> Iterator[str]:
    """Yields what a class has besides what its source shows: derived methods, second names, families."""
    owner = getattr(importlib.import_module(package), name)
    if not inspect.isclass(owner):
        return
    paths = {member: _path(package, name, member, function) for member, function in _members(owner)}
    if others := [f"[`{m}`][{path}]" for m, path in paths.items() if path != f"{package}.{name}.{m}"]:
        yield f"With the arguments of the methods they lead to: {', '.join(others)}."
    if name != "Admin":
        return
    for family, kind in families().items():
        path = f"{kind.__module__}.{kind.__qualname__}"
        if package == "pyrmq_core":
            yield f"::: {path}\n    options:\n      heading: admin.{family}\n      toc_label: admin.{family}"
        else:
            links = ", ".join(f"[`{member}`][{path}.{member}]" for member, _ in _members(kind))
            yield f"`admin.{family}`: {links}."


def _target(target: str, outside: bool) -> str:
    """Returns where a link of the project leads on the site."""
    if outside:
        target = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    name = target.removeprefix("../")
    if name == target:
        return target
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name.startswith("examples/") and name.endswith(".py"):
        return name.removesuffix(".py") + ".md"
    return f"{name}.md" if name in SHOWN_AS_TEXT else target
