"""Encoded answers: a cache of routes, since most queries are repeated, and the encoding of long answers in steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import MAX_FRAME_BYTES
from pyrmq_core.protocol.java.json_text import dumps, dumps_bare
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.nameserver.tables.state import BROKERS_PER_STEP, TOPICS_PER_STEP, Steps

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
# The approximate memory of a cached route beside its body.
ROUTE_BYTES: Final = 1024


class _CachedAnswer(NamedTuple):
    route: TopicRouteData
    order_topic_conf: str | None
    answer: Command


class RouteCache:
    """A cache of encoded routes. It compares routes by identity: the tables return the same object until it changes."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._cache: dict[tuple[str, bool], _CachedAnswer] = {}

    def cached(
        self, topic: str, route: TopicRouteData, order_topic_conf: str | None, *, bare_ids: bool
    ) -> Command | None:
        """Returns the cached answer for this route object, or None."""
        cached = self._cache.get((topic, bare_ids))
        if cached is not None and cached.route is route and cached.order_topic_conf == order_topic_conf:
            return cached.answer
        return None

    def keep(
        self, topic: str, route: TopicRouteData, order_topic_conf: str | None, body: bytes, *, bare_ids: bool
    ) -> Command:
        """Returns the answer with this body, and caches it."""
        before = self._cache.get((topic, bare_ids))
        self._bytes += len(body) - len(before.answer.body) if before is not None else len(body) + ROUTE_BYTES
        if self._bytes > self._max_bytes:
            self._cache.clear()
            self._bytes = len(body) + ROUTE_BYTES
        answer = success(body=body)
        self._cache[topic, bare_ids] = _CachedAnswer(route, order_topic_conf, answer)
        return answer


def encode_route(route: TopicRouteData, order_topic_conf: str | None, *, bare_ids: bool) -> Steps[bytes]:
    """Encodes the route with its order configuration in steps, as `TopicRouteData.to_json` does at once."""
    brokers, queues, servers = route.broker_datas, route.queue_datas, route.filter_server_table
    if len(brokers) <= BROKERS_PER_STEP and len(queues) <= BROKERS_PER_STEP and len(servers) <= BROKERS_PER_STEP:
        return replace(route, order_topic_conf=order_topic_conf).to_json(bare_ids=bare_ids)
    encode = dumps_bare if bare_ids else dumps
    parts = [b'{"brokerDatas":[']
    parts += yield from _joined(([broker.to_members() for broker in portion] for portion in _some(brokers)), encode)
    parts.append(b'],"filterServerTable":{')
    parts += yield from _joined((dict(portion) for portion in _some(servers.items())), encode)
    parts.append(b'},"queueDatas":[')
    parts += yield from _joined(([queue.to_members() for queue in portion] for portion in _some(queues)), encode)
    parts.append(b"]")
    rest = replace(route, broker_datas=(), queue_datas=(), filter_server_table={}, order_topic_conf=order_topic_conf)
    return b"".join(parts) + _members_after(rest.to_json(bare_ids=bare_ids), b'"queueDatas":[]')


def encode_cluster_info(info: ClusterInfo) -> Steps[bytes]:
    """Encodes the body of `ClusterInfo.to_command` in steps."""
    parts = [b'{"brokerAddrTable":{']
    brokers = _some(info.broker_addr_table.items())
    parts += yield from _joined(({name: broker.to_members() for name, broker in portion} for portion in brokers), dumps)
    parts.append(b'},"clusterAddrTable":{')
    clusters = _some(info.cluster_addr_table.items())
    parts += yield from _joined(({cluster: list(names) for cluster, names in portion} for portion in clusters), dumps)
    return b"".join((*parts, b"}}"))


def encode_topic_list(topics: Sequence[str]) -> Steps[bytes]:
    """Encodes the body of `TopicList.to_command` in steps; raises `BodyError` if it exceeds a frame."""
    parts = [b'{"topicList":[']
    names = (topics[start : start + TOPICS_PER_STEP] for start in range(0, len(topics), TOPICS_PER_STEP))
    parts += yield from _joined(names, dumps)
    return b"".join((*parts, b"]}"))


def _some(items: Iterable[Any]) -> Iterable[list[Any]]:
    rest = iter(items)
    while portion := list(islice(rest, BROKERS_PER_STEP)):
        yield portion


def _joined(values: Iterable[Any], encode: Any) -> Steps[list[bytes]]:
    """Encodes lists or objects, one a step, and returns their texts without brackets, and with commas between them."""
    parts: list[bytes] = []
    size = 0
    for value in values:
        parts += (b",", encode(value)[1:-1]) if parts else (encode(value)[1:-1],)
        size += len(parts[-1])
        if size > MAX_FRAME_BYTES:
            raise BodyError(f"the answer is longer than a frame of {MAX_FRAME_BYTES} bytes; ask for less")
        yield
    return parts


def _members_after(body: bytes, member: bytes) -> bytes:
    return body[body.index(member) + len(member) :]
