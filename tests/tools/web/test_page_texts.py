"""Every text that can reach the page has its translation, and the page in Chinese has no English sentence left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pyrmq_core import Admin
from pyrmq_core.client.admin import health, health_rules, servers, wait_reasons
from pyrmq_core.model import MessageModel
from pyrmq_core.tools.search import search
from pyrmq_core.tools.web import languages
from pyrmq_core.tools.web.body_text import FORMS
from tests.support import page_texts
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import fill, served

WEB = Path(languages.__file__).parent
CORE = [Path(str(module.__file__)) for module in (health, health_rules, servers, wait_reasons, search)]
TABLE = json.loads((languages.TABLES / "zh-CN.json").read_text(encoding="utf-8"))
# Values that templates say: RocketMQ's ways to consume, and the forms of a body.
SAID_VALUES = {*(model.value.lower() for model in MessageModel), "actively", "passively", "pop", *FORMS}
# Names, units, samples of input and values of forms that are the same in each language.
NAMES = {
    *(
        "pyrmq",
        "· pyrmq",
        "NameServers",
        "ms",
        "SQL",
        "CSV",
        "jsonl",
        "csv",
        "yes",
        "no",
        "broker-a/0",
        "reserve.time=72",
    ),
    *(
        "json.user.id, properties.region",
        "json.user.id == 42 and properties.region == 'eu'",
        r"order \d+7\b",
        "TagA || TagB",
        "amount > 10",
    ),
}
CHINESE = re.compile(r"[\u4e00-\u9fff]")
COMMAND = re.compile(r"pyrmq [a-z]+ [a-z-]+")
# Raised at the start of the server, before there is a viewer.
AT_START = "mask {text!r} is not"


def templates() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((WEB / "templates").glob("*.html"))}


def modules() -> dict[str, str]:
    paths = [*sorted(WEB.rglob("*.py")), *CORE, WEB.parent.parent / "client" / "texts.py"]
    # Its texts are those that `template_texts` makes of what it counts.
    return {str(path): path.read_text(encoding="utf-8") for path in paths if path.name != "rendering.py"}


def test_each_text_has_one_translation_and_each_translation_its_text() -> None:
    script = page_texts.script_texts((WEB / "static" / "page.js").read_text(encoding="utf-8"))
    texts = {text for source in templates().values() for text in page_texts.template_texts(source)}
    texts |= {text for source in modules().values() for text in page_texts.code_texts(source)}
    texts |= {name for source in modules().values() for name in page_texts.check_names(source)}
    assert set(TABLE[languages.SCRIPT]) == script
    assert page_texts.table_faults(TABLE, texts | script | SAID_VALUES) == []


@pytest.mark.parametrize("name", templates())
def test_no_words_of_a_template_are_unsaid(name: str) -> None:
    assert [text for text in page_texts.raw_texts(templates()[name]) if text not in NAMES] == []


def test_no_errors_and_changes_of_the_page_are_unsaid() -> None:
    raw = [text for source in modules().values() for text in page_texts.raw_errors(source)]
    assert [text for text in raw if AT_START not in text] == []


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        ("<p>Read this.</p>", ["Read this."]),
        ('<a title="read this">{{ x }}</a>', ["read this"]),
        ('{{ "read this" if x else _("that") }}', ["read this"]),
        ('{{ head("lag", "lag", sort) }}', ["lag"]),
        ('{{ _("so {what}", what="read this") }}', ["read this"]),
        ('{% if x %}{{ _("said") }}{% else %}unsaid{% endif %}', ["unsaid"]),
        ('<td class="name">{{ _("said") }} <code>pyrmq health</code> {{ link("/group", sort="lag") }}</td>', []),
        ('{% if kind == "own" %}{{ head(_("lag"), "lag", sort) }}{% endif %}', []),
    ],
)
def test_unsaid_words_are_reported(source: str, raw: list[str]) -> None:
    assert page_texts.raw_texts(source) == raw


def test_texts_and_faults_of_a_table() -> None:
    assert set(page_texts.template_texts('{{ _("a") }}{{ n|counted("b") }}')) == {"a", "{number} b", "{number} bs"}
    assert set(page_texts.code_texts('Text("a")\nText("b {c}", c=1)')) == {"a", "b {c}"}
    with pytest.raises(AssertionError, match="no constant"):
        list(page_texts.code_texts('Text(f"a {b}")'))
    source = 'InvalidArgument("no such")\nInvalidArgument(f"no {a}")\nInvalidArgument(Text("no"))'
    assert len(page_texts.raw_errors(source)) == 2
    assert page_texts.script_texts("""said("a's {b}", {}); said('c')""") == {"a's {b}", "c"}
    table = {"x": {"a {n}": "A", "b": "B"}, "y": {"b": "B", "c": "C"}}
    assert page_texts.table_faults(table, {"a {n}", "b", "d"}) == [
        "no translation: d",
        "of no text: c",
        "other values: a {n}",
        "two translations: b",
    ]


class _Shown(HTMLParser):
    """Collects what a reader sees or hears of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag if tag in (*page_texts.HIDDEN_TAGS, "pre") else self._hidden
        self.texts += [value for name, value in attrs if name in page_texts.SHOWN and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.texts.append(data)


def english(page: str) -> Iterator[str]:
    """Yields the texts of a page with two English words side by side."""
    shown = _Shown()
    shown.feed(page)
    for text in shown.texts:
        line = COMMAND.sub("", " ".join(text.split()))
        if re.search(r"[A-Za-z][a-z']+ [a-z']{2,}", line) and line not in NAMES:
            yield line


async def test_the_page_in_chinese_has_no_english_sentence() -> None:
    paths = (
        *("/", "/?filter=none", "/topics", "/topics?kind=manifests", "/topics?filter=none", "/topic?topic=orders"),
        *("/groups", "/groups?filter=none", "/group?group=billing", "/messages", "/messages?topic=orders"),
        *("/messages?topic=orders&key=none", "/messages?topic=orders&contains=none", "/tail?topic=orders"),
        *("/message?topic=orders&brokerName=broker-a&queueId=0&offset=0", "/producers", "/producers?filter=none"),
        *("/dead-letters", "/dead-letters?group=audit", "/changes", "/send?topic=orders", "/reset?group=billing"),
        *("/delete?topic=orders", "/topic?topic=orders&filter=none", "/group", "/nowhere", "/consume?group=billing"),
    )
    async with served(allow_changes=True, brokers=1, topics={"orders": 4}) as page:
        await fill(page.cluster.nameserver)
        async with Admin(nameserver=page.cluster.nameserver) as admin:
            await dead(page.cluster.nameserver, admin, "audit", "orders", "refused")
            await admin.brokers.wipe_write_perm("broker-a")
        page.http.cookies.set("language", "zh-CN")
        token = re.search(r'name="token" value="([^"]+)"', (await page.get("/send")).text)
        assert token is not None
        forms: dict[str, dict[str, str]] = {
            "/reset": {"group": "billing", "topic": "orders", "to": "earliest"},
            "/delete": {"topic": "orders", "group": ""},
            "/resend": {"group": "audit", "all": "yes", "rate": "20"},
            "/stop": {},
        }
        shown = {path: (await page.http.get(path)).text for path in paths}
        for path, fields in forms.items():
            shown[f"form {path}"] = (await page.http.post(path, data={"token": token[1], **fields})).text
    assert {path: left for path, text in shown.items() if (left := list(english(text)))} == {}
    assert [path for path, text in shown.items() if '<html lang="zh-CN"' not in text or not CHINESE.search(text)] == []
