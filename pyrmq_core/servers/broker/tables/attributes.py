"""Attributes of topics and groups, and how requests change them: `+name=value` sets one, `-name` removes it.

The attributes are those of 5.5.0. The cleanup policy COMPACTION is refused, since this broker has no queues for it.
Sources: common/attribute/AttributeParser.java, AttributeUtil.java, TopicMessageType.java, common/TopicAttributes.java,
SubscriptionGroupAttributes.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.integers import MAX_LONG, parse_long
from pyrmq_core.protocol.shown_values import shown

MESSAGE_TYPE: Final = "message.type"
# A message type that is refused with a different code than unknown types. 5.4.0 allows it by enableMixedMessageType.
MIXED: Final = "MIXED"
FORMAT: Final = "+name=value sets an attribute, -name removes one"


class BadAttribute(Exception):
    """Raised to refuse a change of attributes. The text is the reason."""


ANY: Final = ("",)


@dataclass(frozen=True, slots=True)
class Attribute:
    """The allowed values of an attribute of topics or groups: `texts`, or whole numbers from `least` to `most`.

    The texts `ANY` allow any text. Without `is_changeable`, the attribute can be set only when its topic or group is
    created.
    """

    texts: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    is_changeable: bool = True

    def check(self, name: str, value: str) -> None:
        if self.texts:
            if value not in self.texts and self.texts != ANY:
                raise BadAttribute(f"{name} is {shown(value)}; {', '.join(self.texts)} are possible")
            return
        try:
            number = parse_long(value)
        except ValueError as error:
            raise BadAttribute(f"{name} is {shown(value)}, no whole number: {error}") from None
        if not self.least <= number <= self.most:
            raise BadAttribute(f"{name} is {number}; {self.least} to {self.most} are possible")


Attributes = Mapping[str, Attribute]

TOPIC_ATTRIBUTES: Final[Attributes] = MappingProxyType(
    {
        "queue.type": Attribute(("SimpleCQ", "BatchCQ"), is_changeable=False),
        "cleanup.policy": Attribute(("DELETE",), is_changeable=False),
        MESSAGE_TYPE: Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")),
        "reserve.time": Attribute(least=-1, most=MAX_LONG),
        "lite.topic.expiration": Attribute(least=-1, most=43_200),
    }
)
GROUP_ATTRIBUTES: Final[Attributes] = MappingProxyType(
    {
        "priority.factor": Attribute(least=0, most=100),
        "lite.bind.topic": Attribute(ANY),
        "lite.sub.model": Attribute(("Shared", "Exclusive")),
        "lite.sub.reset.offset.exclusive": Attribute(("true", "false")),
        "lite.sub.reset.offset.unsubscribe": Attribute(("true", "false")),
        "lite.sub.client.quota": Attribute(least=-1, most=MAX_LONG),
        "lite.sub.client.max.event.cnt": Attribute(least=10, most=MAX_LONG),
        "lite.sub.wildcard": Attribute(ANY),
    }
)


def parsed_changes(text: str) -> dict[str, str]:
    """Parses the attribute changes in request 17: `+a=1,-b` becomes `{"+a": "1", "-b": ""}`, as in Java.

    Raises `BadAttribute` if the text has another form or names an attribute twice.
    """
    changes: dict[str, str] = {}
    for change in _split(text, ",") if text else ():
        name, value = change, ""
        if "=" in change:
            parts = _split(change, "=")
            if len(parts) < 2 or "+" not in parts[0]:
                raise BadAttribute(f"attribute change {shown(change)}: {FORMAT}")
            name, value = parts[0], parts[1]
        elif "-" not in change:
            raise BadAttribute(f"attribute change {shown(change)}: {FORMAT}")
        if name in changes:
            raise BadAttribute(f"attribute change {shown(name)} is there twice")
        changes[name] = value
    return changes


def listed_changes(owner: str, changes: object) -> dict[str, str]:
    """Returns the attribute changes of a JSON object, with numbers as text. Raises `InvalidArgument` for other types.

    `changes` is None if there are none. `owner` names the topic or group in an error.
    """
    if changes is None:
        return {}
    if not isinstance(changes, Mapping):
        raise InvalidArgument(f"attributes of {owner} is {shown(changes)}; it maps names to values")
    texts = {change: str(value) if type(value) is int else value for change, value in changes.items()}
    for change, value in texts.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{change[:40]} of {owner} is {shown(value)}; a text or a number is possible")
    return texts


def changed_attributes(
    possible: Attributes, present: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Returns the attributes after the changes. `present` is None for a new topic or group.

    Raises `BadAttribute` for an unknown attribute, an impossible value, or a change that is not allowed.
    """
    attributes = dict(present or {})
    named: set[str] = set()
    for change, value in changes.items():
        sign, name = change[:1], change[1:]
        if not name or sign not in ("+", "-") or "+" in name or "-" in name:
            raise BadAttribute(f"attribute change {shown(change)}: {FORMAT}")
        if name in named:
            raise BadAttribute(f"attribute {shown(name)} is set or removed twice")
        named.add(name)
        if sign == "-" and (present is None or name not in present):
            raise BadAttribute(f"attribute {shown(name)} cannot be removed: it is not set")
        if (attribute := possible.get(name)) is None:
            raise BadAttribute(f"unsupported key: {name[:80]}")
        if present is not None and not attribute.is_changeable:
            raise BadAttribute(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del attributes[name]
        else:
            attribute.check(name, value)
            attributes[name] = value
    return attributes


def _split(text: str, separator: str) -> list[str]:
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts
