"""`TopicStatistics`: the offsets of many queues by one request for each topic and broker (GET_TOPIC_STATS_INFO, 202).

The offsets are those of GET_MIN_OFFSET and GET_MAX_OFFSET, since AdminBrokerProcessor.getTopicStatsInfo calls the same
functions of the store (5.4.0 and 4.9.7). An answer may lack queues: 4.9.7 lists only as many as the topic has for
writing. A broker refuses the request if the account lacks the right, and 5.4.0 if one queue's file cannot be read.
Queues that are missing in the answer have to be queried one by one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import trio

from pyrmq_core.client.arguments import queue_of
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.query_many import query_many
from pyrmq_core.errors import ProtocolError, ResponseError
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.framing.codes import PASSING_CODES
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.requests.figures.topic_stats import GetTopicStats, queue_rows

# If fewer queues of a topic at a broker are wanted, each has its own request, since for statistics a broker reads a
# message of every queue of the topic.
MANY_QUEUES: Final = 4
# If an answer has more than this many times the wanted queues, the next queries are for single queues.
FEW_OF_MANY: Final = 8
# After a refusal or an answer with too many queues, a topic's statistics are not queried there for this time.
REFUSED_SECONDS: Final = 60.0
# The limits on cached answers, in number and bytes of each. An answer that equals the cached one is not parsed again.
KEPT_ANSWERS: Final = 64
KEPT_BYTES: Final = 512 * 1024

# A topic, without the namespace, on a broker.
TopicOnBroker: TypeAlias = tuple[str, str]
Bounds: TypeAlias = dict[MessageQueue, OffsetRange]


@dataclass(frozen=True, slots=True)
class _KeptAnswer:
    body: bytes = b""
    queues: tuple[MessageQueue, ...] = ()
    bounds: Bounds = field(default_factory=dict)
    last_stored: dict[MessageQueue, int] = field(default_factory=dict)


class TopicStatistics:
    """A reader of the offsets of many queues, with one request of up to `timeout` seconds for each topic and broker."""

    def __init__(self, client: ClientSession, *, timeout: float, namespace: str | None) -> None:
        self._client = client
        self._timeout = timeout
        self._namespace = namespace
        self._grouped: tuple[tuple[MessageQueue, ...], dict[TopicOnBroker, tuple[MessageQueue, ...]]] = ((), {})
        self._kept: OrderedDict[TopicOnBroker, _KeptAnswer] = OrderedDict()
        self._skipped_until: dict[TopicOnBroker, float] = {}

    async def bounds(self, queues: tuple[MessageQueue, ...]) -> Bounds:
        """Returns the minimum and maximum offsets of queues, by one query for all queues of a topic and broker.

        The result lacks queues that the broker's answer lacks. It also lacks those of a topic and broker if `queues`
        has so few of them that single queries are cheaper. Raises `NetworkError` and `BrokerNotFound` for a broker that
        does not answer, and `ResponseError` for a busy broker, since queries of single queues would fail as well.
        """
        bounds: Bounds = {}
        for answered in await self._answers(queues):
            bounds.update(answered.bounds)
        return bounds

    async def ends_before(self, when_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns the maximum offset of each queue that is empty or whose last message is older than `when_ms`.

        The result lacks queues for which `bounds` returns nothing.
        """
        return {
            queue: kept.end
            for answered in await self._answers(tuple(when_ms))
            for queue, kept in answered.bounds.items()
            if kept.start == kept.end or 0 < answered.last_stored[queue] < when_ms[queue]
        }

    async def _answers(self, queues: tuple[MessageQueue, ...]) -> list[_KeptAnswer]:
        groups = self._groups(queues)
        answers = await query_many(groups, lambda pair: self._ask(pair, groups[pair]))
        return list(answers.values())

    def _groups(self, queues: tuple[MessageQueue, ...]) -> dict[TopicOnBroker, tuple[MessageQueue, ...]]:
        if self._grouped[0] != queues:
            groups: dict[TopicOnBroker, list[MessageQueue]] = {}
            for queue in queues:
                groups.setdefault((queue_of(queue).topic, queue.broker_name), []).append(queue)
            self._grouped = (
                queues,
                {pair: tuple(group) for pair, group in groups.items() if len(group) >= MANY_QUEUES},
            )
        now = trio.current_time()
        return {pair: group for pair, group in self._grouped[1].items() if self._skipped_until.get(pair, now) <= now}

    async def _ask(self, pair: TopicOnBroker, queues: tuple[MessageQueue, ...]) -> _KeptAnswer:
        topic, broker_name = pair
        on_wire = with_namespace(topic, self._namespace)
        request = GetTopicStats(on_wire).to_command()
        try:
            answer = await self._client.ask_broker(queues[0], request, timeout=self._timeout, namespace=self._namespace)
            body, kept = bytes(answer.body), self._kept.get(pair)
            if kept is not None and kept.body == body and kept.queues == queues:
                return kept
            rows = queue_rows(answer, on_wire, broker_name)
        except ResponseError as error:
            if error.code in PASSING_CODES:
                raise
            return self._skip(pair)
        except ProtocolError:
            return self._skip(pair)
        if len(rows) > FEW_OF_MANY * len(queues):
            self._skip(pair)
        bounds = {
            queue: OffsetRange(max(0, row[0]), max(0, row[1]))
            for queue in queues
            if (row := rows.get(queue.queue_id)) is not None and row[0] <= row[1]
        }
        last_stored = {queue: rows[queue.queue_id][2] for queue in bounds}
        return self._keep(pair, _KeptAnswer(body, queues, bounds, last_stored))

    def _skip(self, pair: TopicOnBroker) -> _KeptAnswer:
        self._skipped_until[pair] = trio.current_time() + REFUSED_SECONDS
        return _KeptAnswer()

    def _keep(self, pair: TopicOnBroker, answer: _KeptAnswer) -> _KeptAnswer:
        self._kept.pop(pair, None)
        if len(answer.body) <= KEPT_BYTES:
            self._kept[pair] = answer
            if len(self._kept) > KEPT_ANSWERS:
                self._kept.popitem(last=False)
        return answer
