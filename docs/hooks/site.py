"""Hooks of the site's build: pages from outside `docs`, the reference of public names, and links between them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent.parent
# Pages of the project's root, by their names on the site.
OUTSIDE: Final = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
# Files of the project that pages link to and the site shows as text.
SHOWN_AS_TEXT: Final = ("LICENSE",)
# The packages with public names; each gets a page of its own, made from the docstrings.
PACKAGES: Final = (
    "pyrmq_core",
    "pyrmq_core.blocking",
    "pyrmq_core.aio",
    "pyrmq_core.otel",
    "pyrmq_core.columnar",
    "pyrmq_core.embedded",
    "pyrmq_core.testing",
    "pyrmq_core.nameserver",
    "pyrmq_spark",
)
# A word behind the language names the cluster that the tests run the block on.
MARKED_BLOCK: Final = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
LINK: Final = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the generated pages to the navigation."""
    assert config.nav is not None
    config.nav += [
        {"API": [{package: f"reference/{package}.md"} for package in PACKAGES]},
        {"Examples": [{path.stem: example_page(path)} for path in examples()]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in `docs`."""
    pages = {OUTSIDE[name]: (ROOT / name).read_text() for name in OUTSIDE}
    pages |= {f"reference/{package}.md": reference(package) for package in PACKAGES}
    for path in examples():
        pages[example_page(path)] = f"# {path.name}\n\n```python\n{path.read_text()}```\n"
    for name in SHOWN_AS_TEXT:
        pages[f"{name}.md"] = f"# {name}\n\n```text\n{(ROOT / name).read_text()}\n```\n"
    for name, text in pages.items():
        file = File.generated(config, name, content=text)
        if name == "LICENSE.md":
            file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: object, config: MkDocsConfig, files: Files) -> str:
    """Points links at the site's pages: README lies beside docs in the project, and is the first page here."""
    del config, files
    path = page.file.src_uri  # type: ignore[attr-defined] # Page has it; its package names no type here
    outside = path in OUTSIDE.values()
    markdown = MARKED_BLOCK.sub(r"\1", markdown)
    return LINK.sub(lambda found: f"]({_target(found[1], outside)}{found[2] or ''})", markdown)


def examples() -> list[Path]:
    """Returns the examples by name."""
    return sorted((ROOT / "examples").rglob("*.py"))


def example_page(path: Path) -> str:
    """Returns the name of an example's page on the site."""
    return path.relative_to(ROOT).with_suffix(".md").as_posix()


def reference(package: str) -> str:
    """Returns the page of a package's public names, in the order of the alphabet, classes and functions alike."""
    names = sorted(importlib.import_module(package).__all__, key=str.lower)
    return f"# {package}\n\n" + "\n\n".join(f"::: {package}.{name}" for name in names) + "\n"


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
