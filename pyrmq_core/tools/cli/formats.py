"""The forms in which messages are printed: a line for people, JSON, only the body, or a template of fields.

    -o text | json | raw | '{queueId}@{queueOffset} {properties[region]} {body}'

In a template, `{name}` is a field of the message, `{name:>10}` the same in ten columns, `{{` a brace. Characters that
control the terminal are printed as escapes, unless `--raw` is set, since anyone may have sent a message.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Final, TypeAlias

import click

from pyrmq_core import MessageExt
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.search.written_messages import FIELDS, json_line

MessageLine: TypeAlias = Callable[[MessageExt], str | bytes]

PROPERTY: Final = re.compile(r"properties\[([^\[\]]+)\]")
ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}


def text_line(message: MessageExt, *, raw: bool = False) -> str:
    marks = " ".join(mark for mark in (message.tags, message.keys) if mark)
    position = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    line = f"{position} {marks + ' ' if marks else ''}{FIELDS['body'](message)}"
    return line if raw else visible_text(line)


def template_line(template: str, *, raw: bool = False) -> Callable[[MessageExt], str]:
    """Returns the function that formats a message by a template such as `{queueId} {body}`.

    Characters that control the terminal become escapes, unless `raw`. Raises `ValueError` for an unknown field or an
    invalid template.
    """
    for escape, character in ESCAPES.items():
        template = template.replace(escape, character)
    parts: list[tuple[str, Callable[[MessageExt], object] | None, str]] = []
    for literal, name, spec, conversion in Formatter().parse(template):
        if name is None:
            parts.append((literal, None, ""))
            continue
        if conversion:
            raise ValueError(f"!{conversion} is not possible in {{{name}}}")
        try:
            format("", spec or "")
        except ValueError as error:
            raise ValueError(f"{{{name}:{spec}}}: {error}; as {{{name}:>10}}") from None
        parts.append((literal, _field(name), spec or ""))

    text_of = _raw if raw else _shown

    def line(message: MessageExt) -> str:
        shown = [
            literal if field is None else literal + text_of(field(message), spec) for literal, field, spec in parts
        ]
        return "".join(shown)

    return line


def _field(name: str) -> Callable[[MessageExt], object]:
    if name in FIELDS:
        return FIELDS[name]
    if (match := PROPERTY.fullmatch(name)) is not None:
        wanted = match[1]
        return lambda message: message.properties.get(wanted)
    raise ValueError(f"there is no field {{{name}}}; there are {', '.join(FIELDS)}, properties[NAME]")


def _raw(value: object, spec: str) -> str:
    return format("" if value is None else str(value), spec)


def _shown(value: object, spec: str) -> str:
    return format("" if value is None else visible_text(str(value)), spec)


FORMS: Final[Mapping[str, MessageLine]] = {
    "text": text_line,
    "json": json_line,
    "raw": lambda message: message.body,
}


def message_form(text: str, *, raw: bool = False) -> MessageLine:
    """Returns the function that formats a message as text, json or raw, or by a template.

    With `raw`, characters that control the terminal are kept. Raises `BadParameter`, which lists the formats, for
    another text.
    """
    if text in FORMS:
        return _unstripped(functools.partial(text_line, raw=True)) if raw and text == "text" else FORMS[text]
    if "{" not in text:
        raise click.BadParameter(f"{text!r}: text, json, raw, or a template such as '{{queueOffset}} {{body}}'")
    try:
        return _unstripped(template_line(text, raw=True)) if raw else template_line(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from None


def _unstripped(line: Callable[[MessageExt], str]) -> Callable[[MessageExt], bytes]:
    # click removes escape sequences from texts for a pipe, but not from bytes.
    return lambda message: line(message).encode()


def form_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options `-o`, `--raw` and `--json` to a command, and passes it the format they select as `form`."""

    @functools.wraps(command)
    def with_form(*arguments: Any, form: str, as_json: bool, raw: bool, **options: Any) -> None:
        command(*arguments, form=json_line if as_json else message_form(form, raw=raw), **options)

    def checked(ctx: click.Context, param: click.Parameter, value: str) -> str:
        message_form(value)
        return value

    json_flag = click.option("--json", "as_json", is_flag=True, help="Same as -o json: one JSON object a message.")
    form = click.option(
        "-o",
        "form",
        default="text",
        metavar="FORM",
        callback=checked,
        help="text, json, raw (the body), or a template such as '{queueId} {body}'.  [default: text]",
    )
    raw = click.option("--raw", is_flag=True, help="Print control characters as they are, not as escapes.")
    return form(json_flag(raw(with_form)))
