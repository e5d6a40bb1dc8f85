"""The site of documentation: its links, its reference, and what it needs of other hosts, which is nothing."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import zlib
from logging import WARNING
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.browser import browser, missing

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("target", "outside", "expected"),
    [
        ("python.md", False, "python.md"),
        ("../README.md", False, "start.md"),
        ("../CHANGELOG.md", False, "CHANGELOG.md"),
        ("../examples/demo.py", False, "examples/demo.md"),
        ("../LICENSE", False, "LICENSE.md"),
        ("docs/python.md", True, "python.md"),
        ("CONTRIBUTING.md", True, "CONTRIBUTING.md"),
        ("LICENSE", True, "LICENSE.md"),
        ("examples/demo.py", True, "examples/demo.md"),
        ("../tests/golden/README.md", False, "../tests/golden/README.md"),
    ],
)
def test_where_a_link_leads(site: ModuleType, target: str, outside: bool, expected: str) -> None:
    assert site._target(target, outside) == expected


def test_tasks_come_first_then_reference_then_the_design(site: ModuleType) -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.UnsafeLoader)
    parts = [next(iter(part)) for part in site.on_config(SimpleNamespace(nav=settings["nav"])).nav]
    assert parts == ["Home", "Start", "Spark", "Python", "Operation", "Reference", "API", "About"]


def test_every_example_is_named_by_what_it_does(site: ModuleType) -> None:
    examples = {path.relative_to(ROOT / "examples").as_posix() for path in (ROOT / "examples").rglob("*.py")}
    assert examples == {name for titles in site.EXAMPLES.values() for name in titles}


def test_cells_of_wide_tables_name_their_column(site: ModuleType) -> None:
    def table(columns: int) -> str:
        heads, cells = ("".join(f"<{tag}>{n}</{tag}>" for n in range(columns)) for tag in ("th", "td"))
        return f"<table><tr>{heads}</tr><tr>{cells}</tr></table>"

    html = site.on_page_content(f"{table(2)}<p>{table(3)}", None, None, None)
    assert html.startswith(f'{table(2)}<p><table class="cards">')
    assert re.findall(r'<td data-label="(\d)">(\d)</td>', html) == [(str(n), str(n)) for n in range(3)]


def test_marks_of_blocks_are_left_out(site: ModuleType) -> None:
    assert site.MARKED_BLOCK.sub(r"\1", "```python apache\nx\n```\n```python\n") == "```python\nx\n```\n```python\n"


def test_every_package_with_public_names_has_a_page(site: ModuleType) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    documented = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## pyrmq")}
    assert set(site.PACKAGES) == documented
    for package in site.PACKAGES:
        page = site.reference(package)
        for name in importlib.import_module(package).__all__:
            assert f"\n::: {package}.{name}\n" in page


def test_every_family_of_admin_is_in_the_reference(site: ModuleType) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    rows = re.findall(r"^\| `admin\.(\w+)`: .* \| (.*) \|$", text, re.MULTILINE)
    methods = {f"{family}.{method}" for family, listed in rows for method in re.findall(r"`(\w+)`", listed)}
    families = site.families()
    assert {f"{name}.{member}" for name, kind in families.items() for member, _ in site._members(kind)} == methods
    core = site.reference("pyrmq_core")
    for name, kind in families.items():
        assert f"\n::: {kind.__module__}.{kind.__qualname__}\n    options:\n      heading: admin.{name}\n" in core
    for package in ("pyrmq_core.blocking", "pyrmq_core.aio"):
        page = site.reference(package)
        for method in methods:
            family, _, member = method.partition(".")
            assert re.search(rf"^`admin\.{family}`: .*\[`{member}`\]\[", page, re.MULTILINE), method


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("pyrmq_core.aio", "[`send_batch`][pyrmq_core.Producer.send_batch]"),
        ("pyrmq_core.aio", "[`pause`][pyrmq_core.LitePullConsumer.pause]"),
        ("pyrmq_core.aio", "[`read_arrow`][pyrmq_core.PullConsumer.read_arrow]"),
        ("pyrmq_core.blocking", "[`send_async`][pyrmq_core.blocking.Producer.send_soon]"),
    ],
)
def test_methods_that_the_source_of_a_class_does_not_show_are_named(site: ModuleType, package: str, line: str) -> None:
    assert line in site.reference(package)


def test_a_name_that_the_reference_lacks_ends_the_build(
    site: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = set().union(*map(site.documented, site.PACKAGES))
    assert {"pyrmq_core.Admin", "pyrmq_core.Producer.send", "pyrmq_core.client.admin.topics.Topics.list"} <= names
    config = SimpleNamespace(site_dir=str(tmp_path))
    for left_out in ("", "pyrmq_core.Producer.send", "pyrmq_spark.lag", "pyrmq_core.client.admin.topics.Topics.list"):
        lines = "".join(f"{name} py:function 1 page.html#$ -\n" for name in names - {left_out})
        (tmp_path / "objects.inv").write_bytes(b"# a\n# b\n# c\n# d\n" + zlib.compress(lines.encode()))
        caplog.clear()
        site.on_post_build(config)
        warned = {record.getMessage().rpartition(" ")[2] for record in caplog.records if record.levelno == WARNING}
        assert warned == {left_out} - {""}


@pytest.mark.parametrize(
    ("html", "loaded"),
    [
        ('<script src="https://cdn.example/x.js">', True),
        ("<img alt=x src=//cdn.example/x.png>", True),
        ('<link rel="stylesheet" href="https://fonts.googleapis.com/css?family=Roboto">', True),
        ('<link rel="preconnect" href="http://fonts.gstatic.com" crossorigin>', True),
        ('<iframe src="https://elsewhere.example">', True),
        ('<link rel="canonical" href="https://docs.example/">', False),
        ('<a href="https://trio.readthedocs.io">', False),
        ('<script src="assets/javascripts/bundle.js">', False),
        ('<img src="pictures/web-cluster.png" alt="https://x">', False),
    ],
)
def test_what_a_page_loads_from_elsewhere_ends_the_build(
    site: ModuleType, html: str, loaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site.on_post_page(f"<p>{html}</p>", SimpleNamespace(file=SimpleNamespace(src_uri="page.md")), None)
    assert any(record.levelno == WARNING for record in caplog.records) is loaded


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two pages with the project's settings; the whole one takes ten times as long."""
    pages, output = tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("site")
    for folder in ("javascripts", "stylesheets"):
        shutil.copytree(ROOT / "docs" / folder, pages / folder)
    (pages / "index.md").write_text("# Home\n\n```python\nx = 1\n```\n")
    (pages / "other.md").write_text("# Other\n\n## Giraffes\n\nA giraffe.\n")
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.UnsafeLoader)
    plugins = [name for name in settings["plugins"] if isinstance(name, str)]
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(pages),
        site_dir=str(output),
        plugins=plugins,
        hooks=[],
        nav=["index.md", "other.md"],
    )
    build(config)
    return output


def test_nothing_is_loaded_from_elsewhere(site: ModuleType, built: Path) -> None:
    for page in (built / "index.html", built / "404.html"):
        assert site.LOADED.findall(page.read_text()) == []
    for style in built.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", style.read_text()) == []


def test_the_search_works_from_a_disk(built: Path, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    with browser(tmp_path) as chrome:
        chrome.get((built / "index.html").as_uri())
        box = chrome.find_element(By.CSS_SELECTOR, "input.md-search__input")
        box.click()
        box.send_keys("giraffe")
        link = WebDriverWait(chrome, 60, 0.05).until(
            lambda chrome: chrome.find_element(By.CSS_SELECTOR, "a.md-search-result__link[href*=giraffe]")
        )
        assert (link.get_attribute("href") or "").startswith((built / "other.html").as_uri())
        assert chrome.get_log("browser") == []  # type: ignore[no-untyped-call]
