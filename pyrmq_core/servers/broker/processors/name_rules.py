"""The rules for names of topics, groups and clients, which become folders and keys of tables.

A rule returns an error text in RocketMQ's words, or an empty text for a valid name. `checked` applies rules to a
request before its handler runs. Source: common/topic/TopicValidator.java (5.4.0), but groups may have 255 characters,
as in 4.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.names import (
    LMQ_PREFIX,
    MAX_GROUP_CHARS,
    MAX_TOPIC_CHARS,
    is_dead_letter_topic,
    is_lite_queue,
    is_retry_topic,
    owner_topic,
)
from pyrmq_core.protocol.messages.properties import LITE_TOPIC_NAME, LITE_TOPIC_RULE
from pyrmq_core.servers.broker.processors.handlers import Answer, Handler

Rule: TypeAlias = Callable[[str], str]

# The longest retry topic: it becomes a folder's name, and common file systems allow no longer one.
MAX_RETRY_TOPIC_CHARS: Final = 255
# The most characters of a client id. RocketMQ has no limit. Java clients join an address, a name and numbers.
MAX_CLIENT_ID_CHARS: Final = 1024
NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
ALLOWED: Final = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
# What this broker lacks if it refuses a request about a lite topic (see `lite_refusal`).
NO_LITE_QUEUES: Final = "queues of lite topics without enableLmq and enableMultiDispatch"
NO_LITE_POPS: Final = "pops of lite topics"
NOT_PRINTED: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
SHOWN_CHARS: Final = 255


def lite_refusal(request: Command, reason: str) -> Command | None:
    """Returns the refusal of a request that names a lite topic (RocketMQ 5.5), or None for any other request.

    The refusal says that this broker has no `reason`, such as NO_LITE_POPS.
    """
    if not request.ext.get("liteTopic"):
        return None
    return refusal(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f"liteTopic[{_shown(request.ext['liteTopic'])}]: this broker has no {reason}, and reads the "
        "parent topic; ask without liteTopic, and choose messages by their property __LITE_TOPIC",
    )


def topic_fault(topic: str) -> str:
    if not topic.strip():
        return "The specified topic is blank."
    if not NAME.fullmatch(topic):
        return f"The specified topic: {_shown(topic)}, {ALLOWED}"
    if is_retry_topic(topic) or is_dead_letter_topic(topic):
        if len(topic) > MAX_RETRY_TOPIC_CHARS:
            shown = f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's longer than topic max length"
            return f"{shown}: {MAX_RETRY_TOPIC_CHARS}"
    elif len(topic) > MAX_TOPIC_CHARS:
        return f"The specified topic: {_shown(topic)}, is longer than topic max length: {MAX_TOPIC_CHARS}"
    return ""


def queue_fault(topic: str) -> str:
    """Returns the error in the name of a topic or of a lite topic's queue, or an empty text if the name is valid."""
    if not is_lite_queue(topic):
        return topic_fault(topic)
    name = topic.removeprefix(f"{LMQ_PREFIX}{owner_topic(topic)}$")
    wrong = "" if LITE_TOPIC_NAME.fullmatch(name) else f"The specified topic: {_shown(topic)}: {LITE_TOPIC_RULE}"
    return topic_fault(owner_topic(topic)) or wrong


def group_fault(group: str) -> str:
    if not group.strip():
        return "The specified group is blank."
    if not NAME.fullmatch(group):
        return f"The specified group: {_shown(group)}, {ALLOWED}"
    if len(group) > MAX_GROUP_CHARS:
        return f"The specified group: {_shown(group)}, is longer than group max length: {MAX_GROUP_CHARS}"
    return ""


def client_fault(client_id: str) -> str:
    """Returns the error in a client id that is too long or not printable, or an empty text for a valid id.

    The names of brokers in message queues are checked by the same rule.
    """
    if len(client_id) > MAX_CLIENT_ID_CHARS:
        return f"The specified client: {_shown(client_id)}, is longer than {MAX_CLIENT_ID_CHARS}"
    if NOT_PRINTED.search(client_id):
        return f"The specified client: {_shown(client_id)}, contains control characters"
    return ""


def if_any(rule: Rule) -> Rule:
    return lambda text: rule(text) if text else ""


def listed(rule: Rule) -> Rule:
    """Returns a rule that applies `rule` to each of several names separated by semicolons."""
    return lambda text: next((fault for name in text.split(";") if name and (fault := rule(name))), "")


def checked(handler: Handler, **rules: Rule) -> Handler:
    """Returns a handler that first checks header fields by `rules`, which has a rule by the name of each field.

    A request with a wrong field is refused. An absent field is not checked.
    """

    def check(request: Command, peer: Peer) -> Answer:
        for field, rule in rules.items():
            text = request.ext.get(field)
            if text is not None and (fault := rule(text)):
                return refusal(ResponseCode.INVALID_PARAMETER, fault)
        return handler(request, peer)

    return check


def _shown(name: str) -> str:
    return NOT_PRINTED.sub("?", name[:SHOWN_CHARS])
