"""`pyrmq send`: sends one message, or the lines of standard input or of files in batches.

Results are printed in the order of the lines. After a failed line no more lines are read, and the sends in progress are
completed. The error says how many messages are stored, not stored, and perhaps stored, and from which line to continue.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import topic_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@click.argument("body", required=False)
@connection_options
@click.option(
    "--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Send the lines of this file."
)
@click.option(
    "--input", "form", type=click.Choice(("text", "json")), default="text", show_default=True,
    help="A line is a body, or a JSON object: body, tags, keys, properties, ...",
)  # fmt: skip
@click.option("--tags", help="One word that consumers filter by.")
@click.option("--keys", help="Keys for look-ups, separated by spaces.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@click.option("--sharding-key", help="Messages with the same key go to one queue, in order.")
@click.option(
    "--delay",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Deliver after this time (5.0 or later).",
)
@click.option("--delay-level", type=click.IntRange(1, 18), help="Deliver later: 1 (1 s) to 18 (2 h).")
@click.option(
    "--priority", type=click.IntRange(0, 2**31 - 1), help="The queue by urgency, 0 the lowest (5.4 or later)."
)
@click.option("--lite-topic", help="A lite topic of TOPIC (5.5 or later), made by its first message.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number of messages, at the end.")
def send(
    topic: str,
    body: str | None,
    connection: Connection,
    files: tuple[str, ...],
    form: str,
    properties: tuple[str, ...],
    delay: float | None,
    as_json: bool,
    quiet: bool,
    **fields: Any,
) -> None:
    """Send BODY, or one message for each line of standard input or of files."""
    from pyrmq_core.tools.cli.line_sending import Report, send_lines
    from pyrmq_core.tools.cli.message_lines import LineForm

    if body is not None and files:
        raise click.UsageError("give BODY or --file, not both")
    if properties:
        fields["properties"] = dict(_name_and_value(text) for text in properties)
    if delay is not None:
        fields["delay"] = timedelta(seconds=min(delay, timedelta.max.days))
    line_form = LineForm(topic, fields, as_json=form == "json", hint="; without --input json, a line is a body")
    run(send_lines, connection, line_form, body, files, Report(as_json, quiet))


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
