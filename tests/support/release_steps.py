"""The steps of a user with a cluster, 22 that run on any release; each returns, or raises what a user sees."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyrmq_core import LocalTransactionState, Message, MessageExt, MessageModel, OffsetRange, decode
from pyrmq_core.blocking import Admin, Client, LitePullConsumer, Producer, PullConsumer, PushConsumer
from pyrmq_core.model import ConsumeFromWhere
from tests.support.spark import wait_readable

SECONDS: Final = 60.0
PLAIN: Final = 100  # messages of the first topic when it is read


class Walk:
    """One run of the steps, in their order: later ones read what earlier ones sent."""

    def __init__(self, nameserver: str, directory: Path) -> None:
        self._nameserver = nameserver
        self._directory = directory
        mark = uuid.uuid4().hex[:8]
        self.plain, self.ordered, self.delayed, self.halves, self.asked = (
            f"{kind}_{mark}" for kind in ("plain", "ordered", "delayed", "halves", "asked")
        )
        self.group = f"group_{mark}"

    @contextmanager
    def _faces(self, transactions: object = None) -> Iterator[tuple[Admin, Producer, PullConsumer]]:
        with (
            Client(nameserver=self._nameserver) as client,
            Admin(client=client, timeout=20) as admin,
            Producer("walkers", client=client, send_timeout=20, transaction_listener=transactions) as producer,  # type: ignore[arg-type]
            PullConsumer("walkers", client=client, timeout=20) as consumer,
        ):
            yield admin, producer, consumer

    def _until(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not reached():
            assert time.monotonic() < deadline, f"not reached within {SECONDS:g} s"
            time.sleep(0.1)

    def _total(self, consumer: PullConsumer, topic: str) -> int:
        return sum(len(bounds) for bounds in consumer.offset_bounds(consumer.message_queues(topic)).values())

    def _bodies_of(self, consumer: PullConsumer, topic: str) -> set[bytes]:
        pulled = [consumer.pull(queue, 0) for queue in consumer.message_queues(topic)]
        return {message.body for result in pulled for message in result.messages}

    def create_topics(self) -> None:
        with self._faces() as (admin, _, _):
            for topic in (self.plain, self.ordered, self.delayed, self.halves, self.asked):
                admin.create_topic(topic, queues=4)

    def send(self) -> None:
        with self._faces() as (_, producer, _):
            results = [
                producer.send(Message(self.plain, b"%d" % n, tags="odd" if n % 2 else "even", keys=f"k{n}"))
                for n in range(20)
            ]
        assert len({(result.message_queue, result.queue_offset) for result in results}) == 20

    def send_a_batch(self) -> None:
        with self._faces() as (_, producer, _):
            assert len(producer.send_batch([Message(self.plain, b"b%d" % n) for n in range(60)])) == 60

    def send_one_way_and_soon(self) -> None:
        with self._faces() as (_, producer, consumer):
            for number in range(5):
                producer.send_oneway(Message(self.plain, b"o%d" % number))
            for pending in [producer.send_soon(Message(self.plain, b"s%d" % number)) for number in range(15)]:
                pending.result(20)
            self._until(lambda: self._total(consumer, self.plain) == PLAIN)

    def send_in_order(self) -> None:
        with self._faces() as (_, producer, _):
            for number in range(30):
                producer.send(Message(self.ordered, b"%d %d" % (number % 3, number // 3), sharding_key=str(number % 3)))

    def delay_by_level(self) -> None:
        with self._faces() as (_, producer, consumer):
            producer.send(Message(self.delayed, b"later", delay_level=1))
            self._until(lambda: self._total(consumer, self.delayed) == 1)

    def deliver_at_a_time(self) -> None:
        with self._faces() as (_, producer, consumer):
            producer.send(Message(self.delayed, b"timed", delay=timedelta(seconds=1)))
            self._until(lambda: self._total(consumer, self.delayed) == 2)

    def pull_and_commit(self) -> None:
        with self._faces() as (_, _, consumer):
            queue = max(consumer.message_queues(self.plain), key=consumer.max_offset)
            pulled = consumer.pull(queue, 0)
            consumer.commit(queue, pulled.next_offset)
            assert consumer.committed(queue) == pulled.next_offset > 0

    def pull_by_tag(self) -> None:
        count = 0
        with self._faces() as (_, _, consumer):
            for queue in consumer.message_queues(self.plain):
                offset, end = 0, consumer.max_offset(queue)
                while offset < end:
                    pulled = consumer.pull(queue, offset, tags="odd")
                    count, offset = count + len(pulled.messages), pulled.next_offset
        assert count == 10

    def read_ranges(self) -> None:
        messages = 0
        with self._faces() as (_, _, consumer):
            for queue, bounds in consumer.offset_bounds(consumer.message_queues(self.plain)).items():
                with consumer.read(queue, bounds.start, bounds.end) as pulls:
                    messages += sum(len(decode(pull, OffsetRange(pull.start, pull.next_offset))) for pull in pulls)
        assert messages == PLAIN

    def read_arrow(self) -> None:
        rows = 0
        with self._faces() as (_, _, consumer):
            for queue, bounds in consumer.offset_bounds(consumer.message_queues(self.plain)).items():
                with consumer.read_arrow(queue, bounds.start, bounds.end, columns=["body"], tags="even") as batches:
                    rows += sum(batch.num_rows for batch in batches)
        assert rows == 10

    def find_by_key(self) -> None:
        with self._faces() as (admin, _, _):
            self._until(lambda: len(admin.messages.by_key(self.plain, "k7").messages) == 1)

    def _bodies(self) -> set[bytes]:
        kinds = ((b"", 20), (b"b", 60), (b"o", 5), (b"s", 15))
        return {kind + b"%d" % number for kind, count in kinds for number in range(count)}

    def consume_in_a_group(self) -> None:
        messages = self._consumed(self.plain, PLAIN, members=2)
        assert {message.body for message in messages} == self._bodies()

    def consume_in_order(self) -> None:
        seen: dict[bytes, list[int]] = {}
        for message in self._consumed(self.ordered, 30, orderly=True):
            key, number = message.body.split()
            seen.setdefault(key, []).append(int(number))
        assert seen == {key: list(range(10)) for key in (b"0", b"1", b"2")}

    def consume_broadcast(self) -> None:
        messages = self._consumed(self.ordered, 60, members=2, message_model=MessageModel.BROADCASTING)
        assert len(messages) == 60

    def poll(self) -> None:
        messages: list[MessageExt] = []
        with LitePullConsumer(
            f"{self.group}_polling", nameserver=self._nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            consumer.subscribe(self.ordered)
            deadline = time.monotonic() + SECONDS
            while len(messages) < 30 and time.monotonic() < deadline:
                messages += consumer.poll(1.0)
        assert len(messages) == 30

    def show_progress(self) -> None:
        with self._faces() as (admin, _, _):
            assert admin.groups.progress(self.group).lag == 0
            assert self.group in {row.group for row in admin.groups.list().groups}

    def reset_offsets(self) -> None:
        with self._faces() as (admin, _, _):
            admin.groups.reset(self.group, self.plain, "earliest")
            assert admin.groups.progress(self.group, topic=self.plain).lag == PLAIN

    def show_statistics(self) -> None:
        with self._faces() as (admin, _, _):
            assert admin.topics.stats(self.plain).messages == PLAIN
            assert self.group in admin.topics.groups(self.plain)
            assert all(row.error is None for row in admin.brokers.list())

    def ask_and_reply(self) -> None:
        with (
            self._faces() as (_, producer, _),
            PushConsumer(
                f"{self.group}_asked", nameserver=self._nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
            ) as answering,
        ):
            answering.subscribe(self.asked)

            def reply(messages: Sequence[MessageExt]) -> None:
                for message in messages:
                    producer.reply(message, b"re: " + message.body)

            thread = threading.Thread(target=answering.run, args=(reply,))
            thread.start()
            try:
                self._until(lambda: answering.assigned_queues)
                assert producer.request(Message(self.asked, b"x"), timeout=20).body == b"re: x"
            finally:
                answering.stop()
                thread.join()

    def list_producers(self) -> None:
        with self._faces() as (admin, producer, _):
            producer.send(Message(self.delayed, b"seen"))
            self._until(lambda: "walkers" in {member.group for member in admin.producers.list().producers})

    def send_in_transactions(self) -> None:
        """Sends in transactions; a broker may deliver a half message twice whose end it has not noted yet.

        This is the last step: a broker of 5.5.0 takes a whole processor from then on.
        """

        class Listener:
            def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
                rolled_back = message.body == b"no"
                return LocalTransactionState["ROLLBACK_MESSAGE" if rolled_back else "COMMIT_MESSAGE"]

        with self._faces(Listener()) as (_, producer, consumer):
            for body, state in ((b"yes", "COMMIT_MESSAGE"), (b"no", "ROLLBACK_MESSAGE"), (b"ask", "UNKNOW")):
                chosen = LocalTransactionState[state]
                producer.send_in_transaction(Message(self.halves, body), lambda *_, chosen=chosen: chosen)
            self._until(lambda: {b"yes", b"ask"} <= self._bodies_of(consumer, self.halves))
            assert b"no" not in self._bodies_of(consumer, self.halves)

    def _consumed(
        self, topic: str, count: int, *, members: int = 1, orderly: bool = False, **settings: Any
    ) -> list[MessageExt]:
        """Returns what a group's members consume, each message of a member once, when it is so many."""
        wait_readable(self._nameserver, topic, count // members if settings else count)
        kind = "_broadcast" if settings else "_ordered" if orderly else ""
        deliveries: dict[tuple[int, str], MessageExt] = {}
        lock = threading.Lock()

        def handle(member: int, messages: Sequence[MessageExt]) -> None:
            with lock:
                for message in messages:
                    deliveries.setdefault((member, message.offset_msg_id), message)

        def count_found() -> int:
            return len(deliveries if settings else {offset_msg_id for _, offset_msg_id in deliveries})

        with ExitStack() as stack:
            threads = []
            for number in range(members):
                consumer = stack.enter_context(
                    PushConsumer(
                        self.group + kind,
                        nameserver=self._nameserver,
                        instance_name=f"member{number}",
                        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                        local_offset_store_dir=self._directory,
                        **settings,
                    )
                )
                consumer.subscribe(topic)
                thread = threading.Thread(
                    target=consumer.run, args=(partial(handle, number),), kwargs={"orderly": orderly}
                )
                threads.append((consumer, thread))
            for _, thread in threads:
                thread.start()
            try:
                self._until(lambda: count_found() >= count)
            finally:
                for consumer, thread in threads:
                    consumer.stop()
                    thread.join()
        return list(deliveries.values())


STEPS: Final = tuple(name for name in vars(Walk) if not name.startswith("_"))
