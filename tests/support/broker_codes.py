"""The requests that a broker answers, in words for docs/broker.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pyrmq_core.protocol.framing.codes import REQUEST_NAMES
from pyrmq_core.servers.broker.processors.table import HANDLERS, NOT_BUILT

ABOUT: Final[Mapping[int, str]] = {
    10: "stores a message",
    11: "messages of a queue from an offset on; waits for one as long as the pull asks for",
    12: "messages by key or unique key, within times",
    14: "a group's committed offset, or 22",
    15: "commits a group's offset",
    17: "makes a topic or changes it; in its file and with the NameServers before the answer",
    18: "the same for a list of at most 1000, all or none",
    21: "all topics with their DataVersion",
    25: "changes settings while the broker runs",
    26: "all settings, `name=value` a line",
    28: "the broker's figures, among them `putTps` and the totals of today",
    29: "the offset of a time",
    30: "a queue's end",
    31: "a queue's first offset",
    32: "the store time of a queue's first message",
    33: "a message by its place in the log",
    34: "registers a client for its groups",
    35: "a client leaves its groups",
    36: "stores a message again for its group: delayed, or among the dead letters",
    37: "commits or rolls back a message of a transaction",
    38: "the ids of a group's members, or 1",
    41: "locks queues for a member",
    42: "unlocks them",
    43: "the offsets of all groups",
    45: "the delivered offsets of the delay levels, for slaves",
    46: "whether an expression can be evaluated",
    50: "makes or changes an account of `plain_acl.yml`",
    51: "deletes an account",
    52: "the version of `plain_acl.yml`",
    53: "sets the white list of `plain_acl.yml`",
    54: "all accounts, with their secret keys",
    60: "how far timer messages were delivered, for slaves",
    61: "an empty table in place of the number of timer messages by topic, for slaves",
    200: "makes a group or changes it; in its file before the answer",
    201: "all groups with their DataVersion",
    202: "the offsets and times of a topic's queues",
    203: "the members and subscriptions of a group, or 206",
    204: "the clients of a producer group, or 1",
    207: "deletes a group, and its offsets if asked for",
    208: "a group's offsets beside the ends of the queues",
    215: "deletes a topic, its queues and offsets",
    222: "gives a group new offsets, by time or number",
    223: "the offsets that a group's members have in memory",
    225: "makes or changes a list of at most 1000 groups, all or none",
    300: "the groups that consume a topic",
    303: "the times of each queue's first, last and last consumed message, and the delay",
    305: "the topics that are RocketMQ's own",
    306: "deletes queues whose messages are all gone",
    307: "what a member consumes, from the member itself",
    308: "the lowest offset that groups committed in each queue; removes none, as Apache's does",
    309: "has a member consume one message now",
    310: "stores a message",
    314: "gives a group the offsets of another; 26 for one that is not there and cannot be made",
    315: "one figure of the last minute, hour and day (`TOPIC_PUT_NUMS` and others, below)",
    316: "deletes queues of topics that the broker does not have",
    317: "the offsets of all groups beside the ends of the queues",
    320: "stores a batch",
    321: "the entries of a queue as they are on disk",
    323: "has a half message checked again",
    324: "stores a reply in `<cluster>_REPLY_TOPIC` alone, and passes it on to the client that asked",
    325: "stores a reply in `<cluster>_REPLY_TOPIC` alone, and passes it on to the client that asked",
    328: "the clients of all producer groups",
    329: "removes old files of the log at any hour",
    343: "the topics of which a group committed offsets",
    345: "a group's subscription to a topic",
    351: "a topic's settings, or 17",
    352: "a group's settings, or 26",
    353: "whether a group may read a topic, and forbids or allows it",
    361: "as 11, for a lite pull",
    370: "takes a timer message back",
    402: "an empty table, since all groups pull; for slaves",
    905: "has a slave look at once whether it acts",
    906: "a master's addresses; a slave that acts takes them from a master that is about to register",
    907: "the slaves that follow, and how far each is behind; of a slave, the master that it follows",
    3001: "makes a user",
    3002: "changes a user",
    3003: "deletes a user",
    3004: "a user",
    3005: "all users",
    3006: "gives a subject a policy",
    3007: "changes a subject's policy",
    3008: "deletes a subject's policy",
    3009: "a subject's policies",
    3010: "all policies",
}


def served_codes() -> str:
    """Returns a row for every request code that the broker answers."""
    rows = [f"| {int(code)} | {REQUEST_NAMES[code]} | {ABOUT[code]} |\n" for code in sorted(HANDLERS)]
    return "".join(("| code | request | what it does or answers |\n|---|---|---|\n", *rows))


def refused_codes() -> str:
    """Returns a row for each part that is not built, with the requests that need it."""
    return "".join(("| not built | requests that are answered 3 by name |\n|---|---|\n", *_refused_rows()))


def _refused_rows() -> Iterator[str]:
    for part in sorted(set(NOT_BUILT.values())):
        codes = sorted(code for code, needed in NOT_BUILT.items() if needed == part and code not in HANDLERS)
        if codes:
            yield f"| {part} | {', '.join(f'{int(code)} {REQUEST_NAMES[code]}' for code in codes)} |\n"
