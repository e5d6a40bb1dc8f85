"""Every text that can reach the page: of its templates and its code, by their syntax trees, and of its script.

Each function takes source texts, so that a test can show on a wrong sample that it is able to fail.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

from jinja2 import Environment, nodes

# Attributes that a reader sees or hears.
SHOWN = ("alt", "aria-label", "data-head", "data-unit", "label", "placeholder", "title")
HIDDEN_TAGS = ("script", "style", "code")
# Stands for the value of an expression.
VALUE = "\x00"
WORD = re.compile(r"[A-Za-z]{2,}")
# Arguments that are no text, by their macro and number.
NO_TEXT_ARGUMENTS = {("head", 1), ("chart", 0), ("part_of", 2), ("choice", 1), ("flag", 1)}


def parsed(source: str) -> nodes.Template:
    return Environment(autoescape=True).parse(source)


def template_texts(source: str) -> Iterator[str]:
    """Yields the texts that a template says, also in both numbers if it counts things."""
    tree = parsed(source)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "_" and isinstance(call.args[0], nodes.Const):
            yield call.args[0].value
    for counted in tree.find_all(nodes.Filter):
        if counted.name == "counted":
            assert isinstance(counted.args[0], nodes.Const)
            yield from (f"{{number}} {counted.args[0].value}{ending}" for ending in ("", "s"))


class _RawTexts(HTMLParser):
    """Collects words that stand in HTML itself."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag if tag in HIDDEN_TAGS else self._hidden
        self.raw += [value for name, value in attrs if name in SHOWN and value and WORD.search(value)]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if not self._hidden and WORD.search(data):
            self.raw.append(" ".join(data.replace(VALUE, " ").split()))


def raw_texts(source: str) -> list[str]:
    """Returns the words of a template that are not said by `_`: in its HTML, and in its expressions."""
    tree = parsed(source)
    html = "".join(
        part.data if isinstance(part, nodes.TemplateData) else VALUE
        for output in tree.find_all(nodes.Output)
        for part in output.nodes
    )
    parser = _RawTexts()
    parser.feed(html)
    parser.close()
    return parser.raw + [value for value in _constants(tree) if WORD.search(value)]


def _constants(node: nodes.Node) -> Iterator[str]:
    """Yields the constants of expressions that a page could show."""
    match node:
        case nodes.Const(value=str(value)) if not value.startswith("/"):
            yield value
        case nodes.Compare() | nodes.Extends() | nodes.FromImport() | nodes.Getitem() | nodes.Keyword():
            return
        case nodes.Assign(target=nodes.Name(name="here" | "form")):
            return
        case nodes.Call(node=nodes.Getattr()):
            return
        case nodes.Call(node=nodes.Name(name="_" | "link" | "static" as name)):
            values = [argument.value for argument in node.kwargs] if name == "_" else []
            for argument in [*node.args[1:], *values]:
                yield from _constants(argument)
        case nodes.Call(node=nodes.Name(name=name)):
            for number, argument in enumerate(node.args):
                if (name, number) not in NO_TEXT_ARGUMENTS:
                    yield from _constants(argument)
        case nodes.Filter():
            if node.node is not None:
                yield from _constants(node.node)
        case _:
            for child in node.iter_child_nodes():
                yield from _constants(child)


def code_texts(source: str) -> Iterator[str]:
    """Yields the patterns of a module's texts. Raises `AssertionError` for one that is no constant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Text":
            pattern = node.args[0]
            assert isinstance(pattern, ast.Constant), f"line {node.lineno}: the text is no constant"
            yield str(pattern.value)


def check_names(source: str) -> Iterator[str]:
    """Yields the names of a module's checks of health, which the page says."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "HealthCheck":
            name = node.args[0]
            assert isinstance(name, ast.Constant), f"line {node.lineno}: the name is no constant"
            yield str(name.value)


def raw_errors(source: str) -> list[str]:
    """Returns the errors that a module raises for its viewers with a text that is no `Text`."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("InvalidArgument", "ChangeNotLogged", "Result", "Change", "HealthCheck")
        and any(map(_is_sentence, node.args))
        and not any(isinstance(argument, ast.Name) and argument.id == "OK" for argument in node.args)
    ]


def _is_sentence(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.Constant) and WORD.search(str(part.value)) for part in node.values)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def script_texts(source: str) -> set[str]:
    """Returns the texts that page.js says."""
    return {text for _, text in re.findall(r"\bsaid\(\s*([\"'])(.*?)\1", source)}


def names_in(pattern: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}


def table_faults(table: Mapping[str, Mapping[str, str]], texts: set[str]) -> list[str]:
    """Returns the texts without a translation, translations of no text, and those with other values than the text."""
    keys = [key for part in table.values() for key in part]
    return sorted(
        [f"no translation: {text}" for text in texts - set(keys)]
        + [f"of no text: {key}" for key in set(keys) - texts]
        + [f"two translations: {key}" for key in set(keys) if keys.count(key) > 1]
        + [
            f"other values: {key}"
            for part in table.values()
            for key, text in part.items()
            if names_in(key) != names_in(text)
        ]
    )
