"""`pyrmq query` and `pyrmq dlq`: find messages by key or id, and show and resend dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from pyrmq_core import InvalidArgument, MessageExt, RocketMQError
from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.groups.rows import check_group_known, failed_text
from pyrmq_core.tools.cli.name_completion import group_names, topic_names
from pyrmq_core.tools.cli.servers import CommandGroup, SectionedCommand
from pyrmq_core.tools.cli.tables import json_option, rendered, show, text_of
from pyrmq_core.tools.cli.times import iso_time, optional_instant, shown_time
from pyrmq_core.tools.search.json_output import json_text
from pyrmq_core.tools.search.written_messages import members_of

if TYPE_CHECKING:  # imported when a command runs, so that its help is fast
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.message_queries import MessageList
    from pyrmq_core.client.admin.message_tracks import MessageTrack
    from pyrmq_core.client.admin.messages import MessageTrace
    from pyrmq_core.protocol.messages.trace_events import TraceEvent
    from pyrmq_core.protocol.requests.client.consume_message_directly import ConsumeDirectlyResult

MESSAGE_COLUMNS: Final = ("stored", "broker", "queue", "offset", "msgId", "tags", "keys", "body")
LETTER_COLUMNS: Final = ("stored", "broker", "offset", "msgId", "from", "tries", "keys", "body")
TRACK_COLUMNS: Final = ("group", "state", "offset", "retries", "dead")
TRACE_COLUMNS: Final = ("time", "event", "group", "success", "ms", "tries")
BODY_CHARACTERS: Final = 60
SHOWN_BYTES: Final = 4 * BODY_CHARACTERS
MAX_RESENT: Final = 100_000
# A broker returns at most this many messages of a key (maxMsgsNumBatch of store/config/MessageStoreConfig.java).
MOST_OF_A_BROKER: Final = 64
PORT_BYTES: Final = 4
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

from_option = click.option(
    "--from", "begin", metavar="TIME", help="Only messages stored at or after this ISO-8601 time."
)


@dataclass(frozen=True, slots=True)
class Life:
    """The options of `pyrmq query` for what to do with the messages found.

    `track` shows a message's state in each consumer group. `trace` shows the events that clients recorded about it in
    the trace topic. `consume_by` is a group whose member `client_id`, or any member, is asked to consume the message.
    """

    track: bool
    trace: bool
    consume_by: str | None
    client_id: str | None
    as_json: bool

    @property
    def body_bytes(self) -> int | None:
        return None if self.as_json else SHOWN_BYTES


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@click.option("--key", help="One of the messages' keys, or the whole text of them.")
@click.option("--id", "msg_id", metavar="ID", help="A message id, or an offset message id.")
@click.option("--unique-key", metavar="ID", help="A message id (UNIQ_KEY).")
@from_option
@click.option("--until", "end", metavar="TIME", help="Only messages stored up to this time.")
@click.option(
    "--max",
    "limit",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="The most messages of a broker; the newest count.",
)
@click.option("--track", is_flag=True, help="Show the state of each message in each group.")
@click.option("--trace", is_flag=True, help="Show the events that tracing clients reported.")
@click.option(
    "--consume-by", metavar="GROUP", help="Make a member of this group consume the message.", shell_complete=group_names
)
@click.option("--client", "client_id", metavar="CLIENT", help="With --consume-by: the member's client id.")
@json_option
def query(
    topic: str,
    connection: Connection,
    key: str | None,
    msg_id: str | None,
    unique_key: str | None,
    begin: str | None,
    end: str | None,
    limit: int,
    **wanted: Any,
) -> None:
    """Find messages by key or id."""
    life = Life(**wanted)
    if [key, msg_id, unique_key].count(None) != 2:
        raise click.UsageError("give one of --key, --id and --unique-key")
    first, last = optional_instant(begin, "--from"), optional_instant(end, "--until")
    if life.client_id is not None and life.consume_by is None:
        raise click.UsageError("--client belongs to --consume-by GROUP")
    if key is None and (begin or end):
        raise click.UsageError("--from and --until belong to --key; an id names its message")

    async def work(admin: Admin) -> None:
        if key is not None:
            result = await admin.messages.by_key(
                topic, key, max_num=limit, begin=first, end=last, body_bytes=life.body_bytes
            )
        elif unique_key is not None:
            result = await admin.messages.by_unique_key(topic, unique_key, body_bytes=life.body_bytes)
        else:
            result = await _by_any_id(admin, topic, msg_id or "", life.body_bytes)
        await _show(admin, result, life)
        if key is not None:
            most = min(limit, MOST_OF_A_BROKER)
            _say_limit(
                Counter(message.broker_name for message in result.messages), most, "a broker", as_json=life.as_json
            )

    with_admin(connection, work)


def _say_limit(counts: Counter[Any], most: int, of: str, *, as_json: bool) -> None:
    if counts and max(counts.values()) >= most:
        text = f"these are the newest {most} of {of}, there may be more: see --max, --from and --until"
        click.echo(text if as_json else rendered(text), err=as_json, nl=as_json)


async def _by_any_id(admin: Admin, topic: str, msg_id: str, body_bytes: int | None) -> MessageList:
    """Returns the messages with this unique key, or else the message with this offset message id.

    An offset message id contains a broker's address. The message is fetched only if that broker belongs to the cluster.
    """
    from pyrmq_core.client.admin.message_queries import MessageList

    result, refused = MessageList((), {}), None
    try:
        result = await admin.messages.by_unique_key(topic, msg_id, body_bytes=body_bytes)
    except RocketMQError as error:  # the broker in an offset message id may still have the message
        refused = error
    if not result.messages and await _names_a_broker(admin, msg_id):
        return MessageList((await admin.messages.by_id(msg_id, topic=topic),), result.failures)
    if refused is not None:
        raise refused
    return result


async def _names_a_broker(admin: Admin, msg_id: str) -> bool:
    from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
    from pyrmq_core.protocol.messages.record import unpack_host

    try:
        parts = decode_offset_msg_id(msg_id)
    except InvalidArgument:
        return False
    address = unpack_host(parts.ip + (parts.port & 0xFFFFFFFF).to_bytes(PORT_BYTES))
    brokers = (await admin.cluster_info()).broker_addr_table.values()
    return any(address in broker.broker_addrs.values() for broker in brokers)


async def _show(admin: Admin, answer: MessageList, life: Life) -> None:
    if life.consume_by is not None and len(answer.messages) > 1:
        places = ", ".join(listed.offset_msg_id for listed in answer.messages)
        raise click.ClickException(
            f"{len(answer.messages)} messages are found and --consume-by takes one; give --id with one of {places}"
        )
    failed = failed_text(answer.failures, as_json=life.as_json)
    if answer.failures and not answer.messages:
        click.echo("[]\n" if life.as_json else failed, nl=False)
        raise click.ClickException("no broker that answered has such a message; the others may have it")
    result = None
    if not life.as_json:
        click.echo(_messages_text(answer.messages), nl=False)
    for number, message in enumerate(answer.messages):
        tracks = await admin.messages.track(message) if life.track else ()
        trace = await admin.messages.trace(message.msg_id) if life.trace else None
        if life.consume_by is not None:
            result = await admin.messages.consume_directly(life.consume_by, message, client_id=life.client_id)
        if life.as_json:
            more: dict[str, object] = {"tracks": [_track_members(track) for track in tracks]} if life.track else {}
            more |= {} if trace is None else {"trace": [_event_members(event) for event in trace.events]}
            failed_text({} if trace is None else trace.failures, as_json=True)
            more |= {} if result is None else {"consumed": _result_members(life.consume_by, result)}
            click.echo((", " if number else "[") + json_text({**_message_members(message), **more}), nl=False)
        else:
            click.echo(_life_text(message, tracks if life.track else None, trace), nl=False)
    if life.as_json:
        click.echo("]" if answer.messages else "[]")
    else:
        click.echo(failed, nl=False)
    if result is not None:
        _say_consumed(life, answer.messages[0], result)


def _say_consumed(life: Life, message: MessageExt, result: ConsumeDirectlyResult) -> None:
    """Prints the result of the member that `--consume-by` asked to consume a message.

    Raises `ClickException`, which ends the command with status 1, unless the member succeeded.
    """
    from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult

    word = "nothing" if result.consume_result is None else result.consume_result.value
    line = f"group {life.consume_by} consumed {message.msg_id} in {result.spent_time_ms} ms: {word}"
    if result.consume_result not in (CMResult.SUCCESS, CMResult.COMMIT):
        raise click.ClickException(f"{line}{'' if result.remark is None else f', {result.remark.strip()}'}")
    if not life.as_json:
        click.echo(rendered(line), nl=False)


def _result_members(group: str | None, result: ConsumeDirectlyResult) -> dict[str, object]:
    return {
        "group": group,
        "consumeResult": None if result.consume_result is None else result.consume_result.value,
        "remark": result.remark,
        "order": result.order,
        "spentTimeMs": result.spent_time_ms,
    }


def _messages_text(messages: Sequence[MessageExt]) -> str:
    if not messages:
        return "no such message: it may not be stored yet, or be removed, or be of another topic\n"
    rows = [
        {
            "stored": shown_time(message.store_timestamp),
            "broker": message.broker_name,
            "queue": message.queue_id,
            "offset": message.queue_offset,
            "msgId": message.msg_id,
            "tags": message.tags,
            "keys": message.keys,
            "body": _short(message.body),
        }
        for message in messages
    ]
    return text_of(rows, MESSAGE_COLUMNS, as_json=False)


def _life_text(message: MessageExt, tracks: Sequence[MessageTrack] | None, trace: MessageTrace | None) -> str:
    text = ""
    if tracks is not None:
        rows = [_track_row(track) for track in tracks]
        table = text_of(rows, TRACK_COLUMNS, as_json=False) if rows else "no group reads the topic\n"
        errors = rendered(*(f"{track.group}: {track.error}" for track in tracks if track.error is not None))
        text += f"\n{message.msg_id} in each group:\n{table}{errors}"
    if trace is not None:
        rows = [_event_row(event) for event in trace.events]
        none = "no broker that answered has any\n" if trace.failures else "no client reported any: tracing is off\n"
        table = text_of(rows, TRACE_COLUMNS, as_json=False) if rows else none
        text += f"\ntrace of {message.msg_id}:\n{table}{failed_text(trace.failures, as_json=False)}"
    return text


def _track_row(track: MessageTrack) -> dict[str, object]:
    return {
        "group": track.group,
        "state": track.track_type.value,
        "offset": track.consumer_offset,
        "retries": len(track.retries),
        "dead": len(track.dead_letters),
    }


def _track_members(track: MessageTrack) -> dict[str, object]:
    return {
        "group": track.group,
        "trackType": track.track_type.value,
        "consumerOffset": track.consumer_offset,
        "retries": [message.offset_msg_id for message in track.retries],
        "deadLetters": [message.offset_msg_id for message in track.dead_letters],
        "error": None if track.error is None else str(track.error),
    }


def _event_row(event: TraceEvent) -> dict[str, object]:
    return {
        "time": shown_time(_time_of(event)),
        "event": event.kind,
        "group": event.group,
        "success": None if event.success is None else "yes" if event.success else "no",
        "ms": event.cost_ms,
        "tries": event.retry_times,
    }


def _event_members(event: TraceEvent) -> dict[str, object]:
    return {
        "kind": event.kind,
        "time": iso_time(_time_of(event)),
        "group": event.group,
        "topic": event.topic,
        "keys": event.keys,
        "tags": event.tags,
        "storeHost": event.store_host,
        "costMs": event.cost_ms,
        "success": event.success,
        "retryTimes": event.retry_times,
        "requestId": event.request_id,
        "contextCode": event.context_code,
        "state": event.state,
    }


def _time_of(event: TraceEvent) -> datetime | None:
    try:
        return None if event.timestamp_ms is None else EPOCH + timedelta(milliseconds=event.timestamp_ms)
    except OverflowError:  # a client sent an impossible time
        return None


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Show a group's dead letters, and send them again."""


@dlq.command("list")
@click.argument("group", shell_complete=group_names)
@connection_options
@from_option
@click.option(
    "--max",
    "limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="The most messages of a queue; the newest count.",
)
@json_option
def list_letters(group: str, connection: Connection, begin: str | None, limit: int, as_json: bool) -> None:
    """List a group's dead letters."""
    since = optional_instant(begin, "--from")

    async def work(admin: Admin) -> None:
        shown_bytes = None if as_json else SHOWN_BYTES
        letters = await admin.messages.dead_letters(group, max_num=limit, begin=since, body_bytes=shown_bytes)
        if not letters.messages:
            await check_group_known(admin, group)
        if as_json:
            click.echo(json_text([_message_members(letter) for letter in letters.messages]))
        elif letters.messages:
            show([_letter_row(letter) for letter in letters.messages], LETTER_COLUMNS, as_json=False)
        else:
            click.echo(f"group {group} has no dead letters")
        counts = Counter((letter.broker_name, letter.queue_id) for letter in letters.messages)
        _say_limit(counts, limit, "a queue", as_json=as_json)
        click.echo(failed_text(letters.failures, as_json=as_json), nl=False)

    with_admin(connection, work)


@dlq.command()
@click.argument("group", shell_complete=group_names)
@connection_options
@click.option("--id", "ids", multiple=True, metavar="ID", help="A message id; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="All dead letters, or with --from those stored since.")
@from_option
@click.option(
    "--to",
    default="retry",
    show_default=True,
    type=click.Choice(("retry", "origin")),
    help="retry: to this group only; origin: to the first topic, for every group.",
)
@json_option
def resend(
    group: str,
    connection: Connection,
    ids: tuple[str, ...],
    everything: bool,
    begin: str | None,
    to: Literal["retry", "origin"],
    as_json: bool,
) -> None:
    """Send dead letters again. The dead letters themselves stay."""
    if bool(ids) == everything:
        raise click.UsageError("give --id, once or more, or --all")
    since = optional_instant(begin, "--from")

    async def work(admin: Admin) -> None:
        letters = await admin.messages.dead_letters(group, max_num=MAX_RESENT, begin=since)
        chosen = [dead_letter for dead_letter in letters.messages if everything or dead_letter.msg_id in ids]
        missing = sorted(set(ids) - {dead_letter.msg_id for dead_letter in chosen})
        if missing:
            silent = f" ({', '.join(sorted(letters.failures))} gave no answer)" if letters.failures else ""
            raise click.ClickException(
                f"group {group} has no dead letter {', '.join(missing)}{silent}; nothing is sent"
            )
        if not chosen:
            await check_group_known(admin, group)
            click.echo("[]" if as_json else f"group {group} has no dead letters to send")
            click.echo(failed_text(letters.failures, as_json=as_json), nl=False)
            return
        rows = []
        try:
            for letter in chosen:
                sent = await admin.messages.resend(group, letter, to=to)
                rows.append({"msgId": letter.msg_id, "sentTo": sent.message_queue.topic, "status": sent.status.name})
        except RocketMQError as error:
            error.add_note(f"{len(rows)} of {len(chosen)} dead letters are sent")
            raise
        finally:  # also after a failure or Ctrl-C
            show(rows, ("msgId", "sentTo", "status"), as_json=as_json)
        click.echo(failed_text(letters.failures, as_json=as_json), nl=False)
        counts = Counter((letter.broker_name, letter.queue_id) for letter in letters.messages)
        if everything and max(counts.values()) >= MAX_RESENT:
            raise click.ClickException(
                f"these are the newest {MAX_RESENT} of a queue; older ones are not sent. The page of "
                "`pyrmq web --allow-changes` sends all"
            )

    with_admin(connection, work)


def _letter_row(letter: MessageExt) -> dict[str, object]:
    from pyrmq_core.protocol.messages.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC

    return {
        "stored": shown_time(letter.store_timestamp),
        "broker": letter.broker_name,
        "offset": letter.queue_offset,
        "msgId": letter.msg_id,
        "from": letter.properties.get(DLQ_ORIGIN_TOPIC) or letter.properties.get(RETRY_TOPIC),
        "tries": letter.reconsume_times,
        "keys": letter.keys,
        "body": _short(letter.body),
    }


def _message_members(message: MessageExt) -> dict[str, Any]:
    return {**members_of(message), "offsetMsgId": message.offset_msg_id, "reconsumeTimes": message.reconsume_times}


def _short(body: bytes) -> str:
    text = body[:SHOWN_BYTES].decode(errors="replace")
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= BODY_CHARACTERS else line[: BODY_CHARACTERS - 1] + "…"
