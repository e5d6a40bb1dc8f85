"""Chooses a queue for each row of an Arrow batch: the queue that the row names, its key's queue, or the next in turn.

Rows whose keys share a queue are sent one request after another, so that they stay in order. They wait while the
queue's broker is down. A key's queue is chosen from the queues at the write's first row of the topic. Only if the
broker no longer has that queue, it is chosen from the new route. Rows that name a queue are never moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core import (
    AnyQueue,
    InvalidMessage,
    KeyedQueue,
    MessageQueue,
    NoRoute,
    ThisQueue,
    TopicPublishInfo,
    check_topic,
)
from pyrmq_core.blocking import Producer
from pyrmq_core.columnar import CheckedRows, encoded, string_hash_codes
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions
from pyrmq_spark.write.create_topic import create_topic, sending_topic

Lanes = npt.NDArray[np.int64]

# The lane (`_TopicPlaces`) of rows that name neither a queue nor a key.
BY_TURNS: Final = -1

Fixed: TypeAlias = KeyedQueue | ThisQueue


@dataclass(frozen=True, slots=True)
class AssignedRows:
    """Rows grouped by queue. Group i ends before row `ends[i]`, and is for `queues[i]`, where None means any queue."""

    rows: CheckedRows
    ends: tuple[int, ...]
    queues: tuple[Fixed | None, ...]

    def parts(self) -> Iterator[tuple[Fixed | None, CheckedRows]]:
        for queue, start, end in zip(self.queues, (0, *self.ends), self.ends, strict=False):
            yield queue, self.rows.slice(start, end - start)


class QueueAssignment:
    """The choice of a queue for each row of one partition.

    Rows that name no queue and no key go to the queues in turn, alternating between brokers. Each partition begins at
    its own number, `counter`, so that few partitions use all brokers. With `queueSelection=partition` such rows all go
    to the first queue, with one open request. With `request` each request goes to the next queue.
    """

    def __init__(
        self,
        producer: Producer,
        counter: int,
        connection: ConnectionOptions,
        options: SinkOptions,
        columns_type: str | None,
    ) -> None:
        self._producer = producer
        self._columns_type = columns_type
        self._connection = connection
        self._options = options
        self._counter = counter
        self._timeout = options.send_timeout
        self._keep = options.queue_selection == "partition"
        self._topics: dict[str, _TopicPlaces] = {}

    def placed(self, topic: str, rows: CheckedRows) -> AssignedRows:
        """Returns the rows grouped by queue, in their order within a group. Rows without a fixed queue are one group.

        Raises `NoRoute` if no NameServer knows the topic and brokers do not create it. Raises `InvalidMessage` for a
        queue that the topic does not have.
        """
        lanes = self._lanes(topic, rows)
        if lanes is None:
            return AssignedRows(rows, (rows.num_rows,), (None,))
        order = np.argsort(lanes, kind="stable")
        sorted_lanes = lanes[order]
        ends = np.append(np.flatnonzero(np.diff(sorted_lanes)) + 1, len(order))
        fixed = self._places(topic).fixed
        queues = [None if lane == BY_TURNS else fixed[lane] for lane in sorted_lanes[ends - 1].tolist()]
        together = rows if len(ends) == 1 else rows.take(pa.array(order))
        return AssignedRows(together, tuple(ends.tolist()), tuple(queues))

    def by_turns(self, topic: str) -> AnyQueue:
        places = self._places(topic)
        if places.current is None or not self._keep:
            places.current = AnyQueue(places.next_queue(), keep=self._keep, wait=True)
        return places.current

    def is_batch_topic(self, topic: str) -> bool:
        return self._places(topic).is_batch_topic

    def in_no_order(self, topic: str) -> AnyQueue:
        """Returns the next queue in turn, for a message whose order does not matter, such as a delayed one."""
        return AnyQueue(self._places(topic).next_queue(), wait=True)

    def _lanes(self, topic: str, rows: CheckedRows) -> Lanes | None:
        """Returns each row's index in the list of fixed queues, or None if no row has a fixed queue.

        Raises `InvalidMessage` for a queue that the topic does not have, even by a new route from NameServers.
        """
        places = self._places(topic)
        try:
            return places.lanes(rows)
        except InvalidMessage:
            with suppress(NoRoute):  # the topic is still to be created
                worker.admin(self._connection).route(worker.name_on_brokers(self._connection, topic))
            places.named = self._producer.publish_info(topic, timeout=self._timeout).queues
            return places.lanes(rows)

    def _places(self, topic: str) -> _TopicPlaces:
        if topic not in self._topics:
            check_topic(topic)
            if self._options.create_topic != "auto" and topic != self._options.topic:
                create_topic(self._connection, self._options, topic, self._columns_type)
            info, is_batch_topic = sending_topic(self._connection, self._options, self._producer, topic)
            self._topics[topic] = _TopicPlaces(info, self._counter, is_batch_topic=is_batch_topic)
        return self._topics[topic]


class _TopicPlaces:
    """The queues of a topic, as they were at the write's first row for it.

    `fixed` lists the queues of rows that name a queue, a key or a lite topic. A lane is an index into this list. `walk`
    has all queues, alternating between brokers, for other rows. Keys are assigned to the queues in the order of Java's
    client.
    """

    def __init__(self, info: TopicPublishInfo, counter: int = 0, *, is_batch_topic: bool = False) -> None:
        self.walk = info.interleaved(counter)
        self._info = info
        self.named = info.queues
        self.is_batch_topic = is_batch_topic
        self.current: AnyQueue | None = None
        self.fixed: list[Fixed] = []
        self._lane_of_keys: dict[int, int] = {}
        self._lane_of: dict[MessageQueue, int] = {}
        self._lane_of_lite: dict[MessageQueue, int] = {}

    def next_queue(self) -> MessageQueue | None:
        return self.walk.select_one_message_queue() if self.walk.queues else None

    def lanes(self, rows: CheckedRows | pa.RecordBatch) -> Lanes | None:
        """Returns each row's lane, by the queue that the row names, or else by its key or lite topic.

        A row without any of these has `BY_TURNS`. Returns None if that is so for all rows.
        """
        names = rows.schema.names
        lanes = None
        if "shardingKey" in names:
            lanes = self._lanes_of_keys(rows.column("shardingKey"))
        if "liteTopic" in names:  # no row has both a key and a lite topic
            lite = self._lanes_of_lite_topics(rows.column("liteTopic"))
            lanes = lite if lanes is None else np.where(lite == BY_TURNS, lanes, lite)
        if "queueId" in names:
            named = self._lanes_of_queues(rows.column("brokerName"), rows.column("queueId"))
            lanes = named if lanes is None else np.where(named == BY_TURNS, lanes, named)
        return None if lanes is None or (lanes == BY_TURNS).all() else lanes

    def _lanes_of_keys(self, keys: pa.Array) -> Lanes:
        queues = self._info.keyed_queues or (self._info.select_one_message_queue(),)
        coded = encoded(keys)
        numbers = abs(string_hash_codes(coded.dictionary)) % len(queues)
        lanes = np.full(len(queues), BY_TURNS)
        for number, index in zip(*(column.tolist() for column in np.unique(numbers, return_index=True)), strict=True):
            if number not in self._lane_of_keys:
                key = coded.dictionary[index].as_py()
                self._lane_of_keys[number] = self._new_lane(KeyedQueue(key, (queues[number],)))
            lanes[number] = self._lane_of_keys[number]
        return _taken(lanes[numbers], coded.indices)

    def _lanes_of_lite_topics(self, names: pa.Array) -> Lanes:
        coded = encoded(names)
        lanes: list[int] = []
        for name in coded.dictionary.to_pylist():
            queue = self._info.queue_of_key(name, is_lite=True)
            if queue not in self._lane_of_lite:
                self._lane_of_lite[queue] = self._new_lane(KeyedQueue(name, (queue,), is_lite=True))
            lanes.append(self._lane_of_lite[queue])
        return _taken(np.array(lanes, np.int64), coded.indices)

    def _lanes_of_queues(self, broker_names: pa.Array, queue_ids: pa.Array) -> Lanes:
        coded = encoded(broker_names)
        brokers = coded.dictionary.to_pylist()
        codes = pc.fill_null(coded.indices, BY_TURNS).to_numpy().astype(np.int64)
        numbered, indices = np.unique(
            np.stack([codes, pc.fill_null(queue_ids, 0).to_numpy().astype(np.int64)]), axis=1, return_inverse=True
        )
        lanes = [
            BY_TURNS if code == BY_TURNS else self._lane_of_queue(brokers[code], int(queue_id))
            for code, queue_id in numbered.T
        ]
        return np.array(lanes, np.int64)[indices.ravel()]

    def _lane_of_queue(self, broker_name: str, queue_id: int) -> int:
        """Returns the index in `fixed` of a queue that rows name. If the queue's broker is down, the send waits for it.

        Raises `InvalidMessage` if the broker does not have the queue.
        """
        queue = MessageQueue(self.walk.topic, broker_name, queue_id)
        there = [other.queue_id for other in self.named if other.broker_name == broker_name]
        if there and queue_id not in there:
            raise InvalidMessage(
                f"column queueId: topic {queue.topic} has no queue {queue_id} on {broker_name} to write to; it has "
                f"{', '.join(map(str, sorted(there)))}"
            )
        if queue not in self._lane_of:
            self._lane_of[queue] = self._new_lane(ThisQueue(queue, wait=True))
        return self._lane_of[queue]

    def _new_lane(self, target: Fixed) -> int:
        self.fixed.append(target)
        return len(self.fixed) - 1


def _taken(lanes: Lanes, indices: pa.Array) -> Lanes:
    padded = np.append(lanes, BY_TURNS)
    lanes_of_rows: Lanes = padded[pc.fill_null(indices, BY_TURNS).to_numpy().astype(np.int64)]
    return lanes_of_rows
