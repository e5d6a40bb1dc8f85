"""The languages of the page. English texts stand in templates and code, and are the keys of each language's table.

A new text is a whole sentence or heading, with `{names}` for its values. It is written so:

    in a template   `{{ _("Page {page} of {last}", page=part.number, last=part.last) }}`, also in title, aria-label,
                    placeholder and data-head. `_` escapes the values. The text itself may have tags such as `<code>`.
    in code         `Text("queue {queue} is empty", queue=queue)`, also as the text of an error. A template shows it by
                    a plain `{{ value }}`. It is a `str` in English everywhere else.
    in page.js      `said("copied {number}", { number })`.

Its translation is one line of `texts/zh-CN.json`, under the page's name, with the same `{names}`. Until there is one,
the text is shown in English. Names of RocketMQ, values of the cluster and texts of other machines are not translated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape
from starlette.requests import Request

from pyrmq_core.client.texts import Text

COOKIE: Final = "language"
TABLES: Final = Path(__file__).parent / "texts"
# The part of a table of texts that page.js needs, which is sent to the browser.
SCRIPT: Final = "script"
WEIGHT: Final = re.compile(r"q\s*=\s*([01](?:\.\d{0,3})?)")


@dataclass(frozen=True, slots=True)
class Language:
    """A language of the page. `code` is its tag in HTML, and `name` its own name.

    `texts` has the translation of each English text, and `script` the translations that page.js needs.
    """

    code: str
    name: str
    texts: Mapping[str, str]
    script: Mapping[str, str]

    def say(self, text: str) -> str:
        """Returns a text in this language, or unchanged if it has no translation."""
        if not isinstance(text, Text) or not text.values:
            return self.texts.get(text, text)
        values = {name: self.say(value) if isinstance(value, Text) else value for name, value in text.values.items()}
        return self.texts.get(text.pattern, text.pattern).format(**values)

    def html(self, text: str, /, **values: object) -> Markup:
        """Returns a text in this language as HTML, with values escaped. Tags in translated texts are kept."""
        if isinstance(text, Text):
            pattern, values = escape(self.texts.get(text.pattern, text.pattern)), dict(text.values)
        else:
            pattern = Markup(self.texts[text]) if text in self.texts else escape(text)
        shown = {name: self.html(value) if isinstance(value, Text) else value for name, value in values.items()}
        return pattern.format(**shown) if shown else pattern


def read_languages() -> dict[str, Language]:
    parts: dict[str, dict[str, str]] = json.loads((TABLES / "zh-CN.json").read_text(encoding="utf-8"))
    texts = {key: text for part in parts.values() for key, text in part.items()}
    english = Language("en", "English", {key: key for key in texts}, {})
    return {"en": english, "zh-CN": Language("zh-CN", "中文", texts, parts[SCRIPT])}


LANGUAGES: Final = read_languages()


def language_of(request: Request) -> Language:
    """Returns the language that the viewer chose, or else the one that the browser prefers."""
    return LANGUAGES.get(request.cookies.get(COOKIE, "")) or accepted(request.headers.get("accept-language", ""))


def accepted(header: str) -> Language:
    """Returns the language with the greatest weight in an Accept-Language header, or English if it has none."""
    of_prefix = {code.partition("-")[0]: language for code, language in LANGUAGES.items()}
    best, most = LANGUAGES["en"], 0.0
    for item in header.split(","):
        name, _, parameter = item.partition(";")
        weight = WEIGHT.fullmatch(parameter.strip())
        wanted = float(weight[1]) if weight else float(not parameter.strip())
        language = of_prefix.get(name.strip().lower().partition("-")[0])
        if language and wanted > most:
            best, most = language, wanted
    return best
