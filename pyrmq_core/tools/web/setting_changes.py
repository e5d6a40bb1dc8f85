"""Prepares the creation of topics and groups and changes of their settings, with the checks of the command line.

The settings of each broker are shown as they are and as they will be.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from pyrmq_core import Admin
from pyrmq_core.client.admin.settings_tables import changes_of, group_settings, topic_settings
from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.tools.web.pages.page import one_of, whole_number
from pyrmq_core.tools.web.prepared import MESSAGE_TYPES, PERMISSIONS, Change, Form, Result
from pyrmq_core.tools.web.rendering import link

Config = TypeVar("Config", TopicConfig, SubscriptionGroupConfig)

TYPES: Final = {name: name for name in ("", *MESSAGE_TYPES)}
FLAGS: Final = {"yes": True, "no": False, "": None}
WHOLE: Final = re.compile("-?[0-9]{1,9}")


async def topic_change(admin: Admin, form: Form) -> Change:
    """Prepares a topic's creation, or a change of its settings."""
    topic, cluster = form.get("topic", "").strip(), form.get("cluster") or None
    reading, queues = whole_number(form, "readQueueNums"), whole_number(form, "writeQueueNums")
    perm, order = one_of(form, "perm", PERMISSIONS), bool(one_of(form, "order", FLAGS))
    attributes = _attributes(form.get("attributes", ""))
    if message_type := one_of(form, "type", TYPES):
        attributes["message.type"] = message_type
    wanted = TopicConfig(topic, reading, queues, perm, order=order, attributes=attributes)
    previews = await admin.preview_topic(wanted, cluster=cluster)
    changed = [(before, after) for before, after in previews.values() if before is not None]
    turns = any(before.order != order for before, _ in changed)
    listed = await admin.topics.order(topic) if turns else None

    async def perform() -> Result:
        settings: dict[str, Any] = {"order": order, "perm": perm, "attributes": attributes}
        await admin.create_topic(topic, queues=queues, read_queues=reading, cluster=cluster, **settings)
        commands = create_commands(previews, topic_command, f"pyrmq topic delete {shlex.quote(topic)}", cluster)
        if turns and order:
            commands += (order_command(topic, listed),)
        return Result(Text("Topic {topic} has these settings.", topic=topic), commands=commands)

    back = link("/topic-settings", topic=topic)
    stay = {name for before, after in changed for name in after.attributes.keys() - before.attributes}
    warning = Text("No command takes this away again: {names}.", names=", ".join(sorted(stay)))
    warnings: tuple[str, ...] = (warning,) if stay else ()
    if listed and not order:
        command = order_command(topic, None)
        text = Text("The order configuration at the NameServers stays until {command} deletes it.", command=command)
        warnings += (text,)
    return _change(Text("topic {topic}", topic=topic), previews, topic_settings, perform, back, warnings)


async def group_change(admin: Admin, form: Form) -> Change:
    """Prepares a group's creation, or a change of its settings. A setting without a value stays as it is."""
    group, cluster = form.get("group", "").strip(), form.get("cluster") or None
    check_users_group(group)
    changes: dict[str, Any] = {
        "retry_max_times": _number(form, "retryMaxTimes"),
        "retry_queue_nums": _number(form, "retryQueueNums"),
        "consume_enable": one_of(form, "consumeEnable", FLAGS),
        "consume_broadcast_enable": one_of(form, "consumeBroadcastEnable", FLAGS),
        "consume_message_orderly": one_of(form, "consumeMessageOrderly", FLAGS),
    }
    previews = await admin.groups.preview_create(group, changes, cluster=cluster)

    async def perform() -> Result:
        await admin.groups.create(group, cluster=cluster, **changes)
        commands = create_commands(previews, group_command, f"pyrmq group delete {shlex.quote(group)}", cluster)
        return Result(Text("Group {group} has these settings.", group=group), commands=commands)

    back = link("/group-settings", group=group)
    return _change(Text("group {group}", group=group), previews, group_settings, perform, back)


def check_users_group(group: str) -> None:
    """Raises `InvalidArgument` for RocketMQ's own groups, as one of which the page itself reads."""
    if is_system_group(group):
        raise InvalidArgument(Text("group {group} is RocketMQ's own", group=group))


def _change(
    name: str,
    previews: Mapping[str, tuple[Config | None, Config]],
    settings: Callable[[Config], dict[str, str]],
    perform: Callable[[], Awaitable[Result]],
    back: str,
    warnings: tuple[str, ...] = (),
) -> Change:
    differences = tuple(
        (broker, setting, now, then)
        for broker, (before, after) in sorted(previews.items())
        for setting, now, then in changes_of({} if before is None else settings(before), settings(after))
    )
    if not differences:
        raise InvalidArgument(Text("{name} has these settings already", name=name))
    new = sorted(broker for broker, (before, _) in previews.items() if before is None)
    if len(new) == len(previews):
        sentence = Text("Create {name} at {brokers}.", name=name, brokers=", ".join(new))
        return Change(sentence, perform, back, differences=differences)
    at_new = Text("It is new at {brokers}, where no command takes it away again.", brokers=", ".join(new))
    sentence = Text("Change {name} at {brokers}.", name=name, brokers=", ".join(sorted(previews)))
    return Change(sentence, perform, back, warnings=((at_new,) if new else ()) + warnings, differences=differences)


def _number(form: Form, name: str) -> int | None:
    text = form.get(name, "").strip()
    if text and not WHOLE.fullmatch(text):
        raise InvalidArgument(Text("{name}={value!r} is no whole number", name=name, value=text[:80]))
    return int(text) if text else None


def _attributes(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split()]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise InvalidArgument(Text("attribute {name!r} is not NAME=VALUE", name=wrong[0][:80]))
    return {name: value for name, _, value in pairs}


def create_commands(
    previews: Mapping[str, tuple[Config | None, Config]],
    command: Callable[[Config], str],
    delete: str = "",
    cluster: str | None = None,
) -> tuple[str, ...]:
    """Returns the commands that restore former settings: one if all brokers had the same, or one for each broker.

    `previews` has, by broker, the settings before the change (None if there were none) and after it. `command` formats
    the command that sets some settings. `delete` is the command to return if there were none at any broker. `cluster`
    limits a command for all brokers to one cluster.
    """
    commands = {broker: command(before) for broker, (before, _) in sorted(previews.items()) if before is not None}
    if delete and not commands:
        commands = dict.fromkeys(previews, delete)
    if len(commands) == len(previews) and len(set(commands.values())) == 1:
        text = next(iter(commands.values()))
        return (f"{text} -c {shlex.quote(cluster)}" if cluster else text,)
    return tuple(f"{text} -b {shlex.quote(broker)}" for broker, text in commands.items())


def topic_command(config: TopicConfig) -> str:
    perm = next((f" --perm {name}" for name, perm in PERMISSIONS.items() if perm == config.perm and name != "rw"), "")
    order = " --order" if config.order else ""
    attributes = "".join(
        f" --attribute {shlex.quote(f'{name}={value}')}" for name, value in sorted(config.attributes.items())
    )
    queues = f"-r {config.read_queue_nums} -w {config.write_queue_nums}"
    return f"pyrmq topic create {shlex.quote(config.topic)} {queues}{perm}{order}{attributes}"


def order_command(topic: str, queues: Mapping[str, int] | None) -> str:
    numbers = (shlex.quote(f"{broker}:{number}") for broker, number in sorted((queues or {}).items()))
    return f"pyrmq topic order {shlex.quote(topic)} {' '.join(numbers) or '--delete'}"


def group_command(config: SubscriptionGroupConfig) -> str:
    flags = {
        "consume": config.consume_enable,
        "broadcast": config.consume_broadcast_enable,
        "orderly": config.consume_message_orderly,
    }
    options = " ".join(f"--{name}" if is_on else f"--no-{name}" for name, is_on in flags.items())
    retries = f"-r {config.retry_max_times} -q {config.retry_queue_nums}"
    return f"pyrmq group create {shlex.quote(config.group_name)} {retries} {options}"
