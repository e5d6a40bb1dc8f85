"""The servers' pages compared with the code: generated tables, the NameServer's settings, the limits of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyrmq_core.filtering.sql92 import MAX_CHARS, MAX_CONDITIONS
from pyrmq_core.network.connection.connection import MAX_REQUESTS
from pyrmq_core.network.connection.stall_detector import FRAME_TIMEOUT_SECONDS
from pyrmq_core.protocol.framing.frame import MAX_FRAME_BYTES
from pyrmq_core.protocol.framing.headers import MAX_FIELDS
from pyrmq_core.protocol.java.json_bounds import MAX_DEPTH
from pyrmq_core.protocol.messages.names import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker import BrokerConfig
from pyrmq_core.servers.broker.broker import LONG_REQUESTS_AT_ONCE, LONG_TURN_SECONDS, MOST_LONG_REQUESTS
from pyrmq_core.servers.broker.clients.consumer_calls import ADMINISTRATION, MAX_ANSWER_BYTES, REPLIES
from pyrmq_core.servers.broker.clients.queue_locks import MOST_LOCKS
from pyrmq_core.servers.broker.processors.administration.broker_settings import MAX_SETTINGS_BYTES
from pyrmq_core.servers.broker.processors.administration.lists import MAX_LIST_BYTES, MAX_LISTED
from pyrmq_core.servers.broker.processors.called_consumers import (
    CALL_SECONDS,
    MEMBERS_AT_ONCE,
    MOST_MEMBERS,
    STATUS_SECONDS,
)
from pyrmq_core.servers.broker.processors.clients import MAX_LOCKS_BYTES
from pyrmq_core.servers.broker.processors.long_answers import MAX_LONG_ANSWER_BYTES
from pyrmq_core.servers.broker.processors.name_rules import MAX_CLIENT_ID_CHARS, MAX_RETRY_TOPIC_CHARS
from pyrmq_core.servers.broker.statistics.figures import MAX_TALLIES
from pyrmq_core.servers.broker.store_services.key_indexing import MOST_LOOK_UPS, TURN_SECONDS
from pyrmq_core.servers.broker.tables.consumer_filters import MOST_CHARS, MOST_FILTERS
from pyrmq_core.servers.broker.tables.subscription_groups import MAX_FORBIDDEN, MAX_GROUP_BYTES
from pyrmq_core.servers.broker.transactions.ended_halves import MOST_KEPT
from pyrmq_core.servers.nameserver import NameServerConfig
from pyrmq_core.servers.nameserver.config import NOT_BUILT, WITHOUT_EFFECT
from pyrmq_core.servers.nameserver.handlers import SMALL_BODY_BYTES, TOPIC_BODY_BYTES
from pyrmq_core.servers.nameserver.registration_queue import ORDINARY_BODY_BYTES, WAITING_BYTES, WAITING_OF_PEER
from pyrmq_core.servers.nameserver.server import REQUESTS_PER_CONNECTION
from pyrmq_core.servers.nameserver.tables.accepted import MAX_FILTER_SERVERS, MAX_NAME_CHARS
from pyrmq_core.servers.nameserver.tables.room import MAX_ADDRESSES_OF_NAME, MAX_CLUSTERS_OF_NAME
from pyrmq_core.servers.protocol.registration import MAX_ATTRIBUTES_CHARACTERS, MAX_INFLATED_BYTES
from tests.support.server_page import ACCESS, SETTINGS, TABLES, written


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_the_pages_have_the_tables_of_the_code(page: Path) -> None:
    assert page.read_text("utf-8") == written(page), "run `python -m tests.support.server_page`"


def test_every_setting_with_effect_has_its_row_and_its_default() -> None:
    reported: dict[str, str] = {}
    nameserver = SETTINGS.read_text("utf-8").partition("\n## Settings of a broker\n")[0]
    tls = ACCESS.read_text("utf-8")
    for names, defaults in re.findall(r"^\| (`.+?) \| (.+?) \|", nameserver + tls, re.MULTILINE):
        texts = ["" if text == "none" else text.strip("`") for text in defaults.split(", ")]
        named = re.findall(r"`([\w.]+)`", names)
        reported.update(zip(named, texts * len(named) if len(texts) == 1 else texts, strict=True))
    settings = NameServerConfig().to_settings()
    with_effect = settings.keys() - WITHOUT_EFFECT.keys() - NOT_BUILT.keys()
    assert reported.keys() == with_effect
    for name in with_effect - {"kvConfigPath", "configStorePath"}:  # these derive from home and port
        assert reported[name] == settings[name], name


MIB = 1024 * 1024
LONG_REQUESTS = [MOST_LONG_REQUESTS, LONG_REQUESTS_AT_ONCE, int(LONG_TURN_SECONDS)]
BOUND = re.compile(
    r"(server)?Max[A-Z]|^max(Held|Heartbeat|Groups|Subscriptions|Registered|Message|Lmq)|serverChannelMaxIdle"
)
# Of these, two bound what the broker itself does, and one what an answer has.
NO_BOUNDS = {
    "diskMaxUsedSpaceRatio",
    "timerMaxDelaySec",
    "defaultQueryMaxNum",
    "haMaxGapNotInSync",
    "accessMessageInMemoryMaxRatio",
}


def limit_rows() -> list[list[str]]:
    """Returns the cells of the table of limits: server, limit, settings, default, effect beyond."""
    part = SETTINGS.read_text("utf-8").partition("\n## Limits\n")[2]
    rows = [line for line in part.splitlines() if line.startswith(("| both", "| NameServer", "| broker"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_bound_that_is_a_setting_is_a_limit_with_its_default() -> None:
    reported: dict[str, str] = {}
    for _, _, names, defaults, _ in limit_rows():
        named = re.findall(r"`(\w+)`", names)
        reported.update(zip(named, re.findall(r"`(\d+)`", defaults), strict=True))
    nameserver, broker = NameServerConfig().to_settings(), BrokerConfig().to_properties()
    ours = {**{name: value for name, value in nameserver.items() if name not in WITHOUT_EFFECT}, **broker}
    assert reported.keys() == {name for name in ours if BOUND.search(name)} - NO_BOUNDS
    for settings in (nameserver, broker):
        assert {name: value for name, value in settings.items() if name in reported} == {
            name: reported[name] for name in settings if name in reported
        }


def test_the_limits_without_a_setting_are_those_of_the_code() -> None:
    numbers = {row[1]: [int(number) for number in re.findall(r"\d+", row[-2])] for row in limit_rows() if not row[2]}
    assert numbers == {
        "a frame": [MAX_FRAME_BYTES],
        "requests under way on a connection": [REQUESTS_PER_CONNECTION, MAX_REQUESTS],
        "nesting of JSON in a body": [MAX_DEPTH],
        "queues of a topic at a broker": [MAX_QUEUES_PER_TOPIC],
        "registrations that wait": [
            WAITING_OF_PEER,
            WAITING_BYTES // 2 // MIB,
            ORDINARY_BODY_BYTES // MIB,
            WAITING_BYTES // 2 // MIB,
        ],
        "a compressed registration; the attributes of a topic in it": [
            MAX_INFLATED_BYTES // MIB,
            MAX_ATTRIBUTES_CHARACTERS,
        ],
        "the body of any other request": [SMALL_BODY_BYTES // 1024, 217, TOPIC_BODY_BYTES // MIB],
        "a name; addresses and clusters of a broker name; filter servers; heartbeatTimeoutMillis": [
            MAX_NAME_CHARS,
            MAX_ADDRESSES_OF_NAME,
            MAX_CLUSTERS_OF_NAME,
            MAX_FILTER_SERVERS,
        ],
        "names of topics; of retry topics and groups; client ids": [
            MAX_TOPIC_CHARS,
            MAX_RETRY_TOPIC_CHARS,
            MAX_CLIENT_ID_CHARS,
        ],
        "an SQL expression": [MAX_CHARS, MAX_CONDITIONS],
        "a group's settings; the body of a lock request": [MAX_GROUP_BYTES, MAX_LOCKS_BYTES],
        "locks of queues": [MOST_LOCKS],
        "an answer with many rows: offsets, topics, groups, clients": [MAX_LONG_ANSWER_BYTES // MIB],
        "SQL expressions of groups; their text together": [MOST_FILTERS, MOST_CHARS],
        "requests passed on to consumers (307, 309, 221) at a time; an answer; the wait for it": [
            ADMINISTRATION.calls,
            MAX_ANSWER_BYTES // MIB,
            int(CALL_SECONDS),
        ],
        "replies on their way to the clients that asked; to one client": [
            REPLIES.calls,
            REPLIES.request_bytes // MIB,
            REPLIES.calls_each,
            REPLIES.request_bytes_each // MIB,
        ],
        "a list of topics (18) or groups (225); settings to change (25)": [
            MAX_LISTED,
            MAX_LIST_BYTES // MIB,
            MAX_SETTINGS_BYTES // 1024,
        ],
        "pairs of a group and a topic forbidden to it (353)": [MAX_FORBIDDEN],
        "topics, and pairs of topic and group, with figures of their own": [MAX_TALLIES],
        "ends of transactions, and half messages stored again, of which it knows beyond a round": [MOST_KEPT],
        "look-ups by key that wait or read; a look-up's turn": [MOST_LOOK_UPS, int(TURN_SECONDS)],
        "long requests (many rows, 18, 222, 225, 314) that wait or work; a request's turn": LONG_REQUESTS,
        "members of a group for a 223": [MOST_MEMBERS, MEMBERS_AT_ONCE, int(STATUS_SECONDS)],
    }
    assert MAX_RETRY_TOPIC_CHARS == MAX_GROUP_CHARS


def test_the_numbers_beyond_a_limit_are_those_of_the_code() -> None:
    beyond = " ".join(row[-1] for row in limit_rows())
    assert f"more than {MAX_FIELDS} fields" in beyond
    assert f"in {FRAME_TIMEOUT_SECONDS:.0f} s" in beyond
