"""Encoded routes, kept until the route or its order configuration is another one: most questions are repeated ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from pyrmq_core.protocol.command import Command, success
from pyrmq_core.protocol.route import TopicRouteData

MAX_KEPT_BYTES: Final = 32 * 1024 * 1024


class _Kept(NamedTuple):
    route: TopicRouteData
    order_topic_conf: str | None
    answer: Command


class RouteAnswers:
    """A route is recognised by identity: the tables give the same value until something in it changes."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[tuple[str, bool], _Kept] = {}

    def answer(self, topic: str, route: TopicRouteData, order_topic_conf: str | None, *, bare_ids: bool) -> Command:
        """The route as JSON, with its order configuration; `bare_ids` as `TopicRouteData.to_json`."""
        kept = self._kept.get((topic, bare_ids))
        if kept is not None and kept.route is route and kept.order_topic_conf == order_topic_conf:
            return kept.answer
        body = encode_route(route, order_topic_conf, bare_ids=bare_ids)
        self._bytes += len(body) - (0 if kept is None else len(kept.answer.body))
        if self._bytes > self._max_bytes:
            self._kept.clear()
            self._bytes = len(body)
        answer = success(body=body)
        self._kept[topic, bare_ids] = _Kept(route, order_topic_conf, answer)
        return answer


def encode_route(route: TopicRouteData, order_topic_conf: str | None, *, bare_ids: bool) -> bytes:
    return replace(route, order_topic_conf=order_topic_conf).to_json(bare_ids=bare_ids)
