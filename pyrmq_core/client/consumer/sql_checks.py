"""Makes brokers check the SQL92 filter expressions that they will evaluate.

A broker that cannot parse a pull's expression returns every message, so each broker checks an expression before the
first pull. The client refuses no expression, since brokers of different releases accept different ones. If a broker
would evaluate only the beginning of an expression, because it cannot parse the rest, the client logs a warning.
"""

from __future__ import annotations

import logging
from typing import Final

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pull.puller import Filter
from pyrmq_core.client.routing.publish_info import subscribe_queues
from pyrmq_core.errors import InvalidArgument, NoRoute
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.sql92 import ignored_rest
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.versions import V5_1_3, version_name
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.requests.broker.check_client_config import CheckClientConfig
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

SHOWN_CHARS: Final = 200


async def check_at_first_broker(
    session: ClientSession, group: str, topic: str, wanted: SqlFilter, *, timeout: float
) -> None:
    """Makes one of the topic's brokers check the expression. Without a route, nothing is checked now.

    `group` and `topic` include the namespace. Raises `ResponseError` if the broker cannot evaluate the expression.
    """
    try:
        route = await session.routes.route(topic)
    except NoRoute:
        _warn_of_refusal(topic, wanted)
        return
    for queue in subscribe_queues(topic, route)[:1]:
        await check_filter(session, group, queue, wanted, timeout=timeout)


async def check_filter(
    session: ClientSession,
    group: str,
    queue: MessageQueue,
    wanted: Filter,
    *,
    timeout: float,
    namespace: str | None = None,
) -> None:
    topic = with_namespace(queue.topic, namespace)
    subscription = SubscriptionData(topic, wanted.expression, expression_type=wanted.KIND)
    command = CheckClientConfig(session.client_id, group, subscription).to_command()
    answer = await session.ask_broker(queue, command, timeout=timeout, namespace=namespace)
    if isinstance(wanted, SqlFilter):
        _warn_of_ignored_rest(wanted.expression, queue.broker_name, answer.version)


def _warn_of_ignored_rest(expression: str, broker_name: str, version: int) -> None:
    has_text_tests = version >= V5_1_3
    ignored = ignored_rest(expression, text_tests=has_text_tests)
    if ignored:
        log.warning(
            "broker %s (%s) takes the SQL expression %r only up to character %d and ignores the rest: %r%s",
            broker_name,
            version_name(version),
            expression[:SHOWN_CHARS],
            len(expression) - len(ignored),
            ignored[:SHOWN_CHARS],
            "" if has_text_tests else "; CONTAINS, STARTSWITH and ENDSWITH exist from RocketMQ 5.1.3 on",
        )


def _warn_of_refusal(topic: str, wanted: SqlFilter) -> None:
    try:
        wanted.predicate()
    except InvalidArgument as error:
        log.warning("no broker has topic %s yet to check its filter, which RocketMQ 5.4.0 refuses: %s", topic, error)
