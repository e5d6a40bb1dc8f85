"""Makes the topic that a write is for, when it does not exist: by the driver, or by the first task that meets it."""

from __future__ import annotations

import time
from typing import Final

from pyrmq_core import NoRoute
from pyrmq_spark import worker
from pyrmq_spark.options import Connection, SinkOptions

# As many as RocketMQ's own `updateTopic` makes.
DEFAULT_QUEUE_NUMS: Final = 8
LOOK_AGAIN_SECONDS: Final = 0.02

_known: set[tuple[Connection, str]] = set()


def create_topic(connection: Connection, options: SinkOptions, topic: str) -> None:
    """On every master; a topic that is there stays as it is. Two tasks that do it at once make the same topic.

    `createTopic=batch` leaves a plain topic plain. Returns when NameServers tell where it is; the last `NoRoute` when
    they do not within `sendTimeoutMs`.
    """
    if (connection, topic) in _known:
        return
    admin, name = worker.admin(connection), worker.name_on_brokers(connection, topic)
    try:
        admin.route(name)
    except NoRoute:
        batch = options.create_topic == "batch"
        admin.create_topic(name, queues=options.topic_queue_nums or DEFAULT_QUEUE_NUMS, batch=batch)
        _wait_for_route(connection, name, options.send_timeout)
    _known.add((connection, topic))


def _wait_for_route(connection: Connection, name: str, seconds: float) -> None:
    """A broker answers when it has the topic; NameServers hear of it a moment later."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            worker.admin(connection).route(name)
            return
        except NoRoute:
            if time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_AGAIN_SECONDS)
