"""Checks of the names, addresses and times that may enter the tables and the KV configuration.

RocketMQ's NameServer checks nothing. More names are valid here than RocketMQ allows for topics
(common/topic/TopicValidator.java). The reason is that each broker also registers topics with its own name and its
cluster's: a host name has dots, and a cluster's name may be in any script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader

# The longest name, since RocketMQ's longest are retry topics: `%RETRY%` and a group of 255 characters.
MAX_NAME_CHARS: Final = 300
# The longest timeout that a broker may set. The default is 120 s, and brokers of 5.x set 10 s.
MAX_HEARTBEAT_TIMEOUT_MS: Final = 24 * 60 * 60 * 1000
# The most filter servers of a broker. RocketMQ had them until 4.2, a few for each broker.
MAX_FILTER_SERVERS: Final = 100

# Control characters, line ends of Unicode, marks that change the direction of text, and lone surrogates.
_UNSAFE: Final = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_NAME: Final = re.compile(rf"[^/\\\s{_UNSAFE}](?:[^/\\{_UNSAFE}]*[^/\\\s{_UNSAFE}])?")
_TOPIC: Final = re.compile(rf"[^/\\\s{_UNSAFE}]+")
_KEY: Final = re.compile(rf"[^{_UNSAFE}]+")
_ADDRESS: Final = re.compile(rf"[^/\\\s{_UNSAFE}]+:([0-9]{{1,5}})")
_HALVES: Final = re.compile("[\ud800-\udfff]")
MAX_PORT: Final = 65_535


def check_name(field: str, name: str) -> None:
    """Raises `HeaderError`, which mentions `field`, unless `name` is valid as the name of a broker, cluster or zone."""
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise _refused(field, name, "blanks at its ends")


def check_topic(field: str, topic: str) -> None:
    """Raises `HeaderError`, which mentions `field`, unless `topic` is valid as the name of a topic."""
    if len(topic) > MAX_NAME_CHARS or not _TOPIC.fullmatch(topic):
        raise _refused(field, topic, "blanks")


def check_address(field: str, address: str) -> None:
    """Raises `HeaderError`, which mentions `field`, unless `address` is `host:port`."""
    match = _ADDRESS.fullmatch(address) if len(address) <= MAX_NAME_CHARS else None
    if match is None or int(match[1]) > MAX_PORT:
        raise HeaderError(f"{field} is {address[:80]!r}; a broker's address is host:port, its port 0 to {MAX_PORT}")


def check_key(field: str, key: str) -> None:
    """Raises `HeaderError`, which mentions `field`, unless `key` is valid as a KV namespace or key.

    It must not be empty or too long, or have control characters.
    """
    if len(key) > MAX_NAME_CHARS or not _KEY.fullmatch(key):
        raise HeaderError(
            f"{field} is {key[:80]!r}; 1 to {MAX_NAME_CHARS} characters are wanted, without control characters"
        )


def check_value(field: str, value: str) -> None:
    """Raises `HeaderError`, which mentions `field`, for half a surrogate pair, which UTF-8 cannot encode."""
    if _HALVES.search(value):
        raise HeaderError(f"{field} holds half a surrogate, which UTF-8 has not; send whole characters")


def check_registration(header: RegistrationHeader) -> None:
    """Raises `HeaderError` for the first invalid name, address or time-out in the header of a broker's registration."""
    check_name("clusterName", header.cluster_name)
    check_name("brokerName", header.broker_name)
    check_address("brokerAddr", header.broker_addr)
    if header.ha_server_addr:
        check_address("haServerAddr", header.ha_server_addr)
    if header.zone_name:
        check_name("__ZONE_NAME", header.zone_name)
    timeout_ms = header.heartbeat_timeout_ms
    if timeout_ms is not None and timeout_ms > MAX_HEARTBEAT_TIMEOUT_MS:
        raise HeaderError(f"heartbeatTimeoutMillis is {timeout_ms}; {MAX_HEARTBEAT_TIMEOUT_MS} (a day) at most")


def check_registered_topic(topic: str) -> None:
    """Raises `BodyError` unless this topic, from the body of a broker's registration, has a valid name."""
    if len(topic) > MAX_NAME_CHARS or not _TOPIC.fullmatch(topic):
        raise BodyError(f"registration: topicName: {_refused('it', topic, 'blanks')}")


def check_filter_servers(servers: Sequence[str]) -> None:
    """Raises `BodyError` for more than `MAX_FILTER_SERVERS`, or if one is too long or has forbidden characters."""
    if len(servers) > MAX_FILTER_SERVERS:
        raise BodyError(f"registration: filterServerList has {len(servers)} addresses; {MAX_FILTER_SERVERS} at most")
    for server in servers:
        if len(server) > MAX_NAME_CHARS or not _TOPIC.fullmatch(server):
            raise BodyError(f"registration: filterServerList: {_refused('one', server, 'blanks')}")


def _refused(field: str, name: str, blanks: str) -> HeaderError:
    return HeaderError(
        f"{field} is {name[:80]!r}; 1 to {MAX_NAME_CHARS} characters are wanted, without /, \\, {blanks} and control "
        "characters"
    )
