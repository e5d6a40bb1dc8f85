"""A trace from a Java producer through a Python consumer and producer to a Java consumer, by message properties."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from pyrmq_core import ConsumeFromWhere, Message, MessageExt
from pyrmq_core.blocking import Admin, Client, Producer, PushConsumer
from tests.otel.test_client import Seen, ids, parent_of
from tests.support.apache import ApacheCluster

PROGRAM = Path(__file__).parent / "java" / "TracedHops.java"
TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
JAVA_SPAN = 0x00F067AA0BA902B7


def test_a_trace_goes_from_java_through_python_to_java(apache_5: ApacheCluster) -> None:
    seen, unique = Seen(), uuid.uuid4().hex[:8]
    first, onward = f"first_{unique}", f"onward_{unique}"
    nameserver, printed = apache_5.nameserver.address, list[str]()

    def java() -> None:
        context = f"00-{TRACE:032x}-{JAVA_SPAN:016x}-01"
        printed.append(apache_5.run_java(PROGRAM, nameserver, first, onward, context))

    with Client(nameserver=nameserver) as client, Admin(client=client) as admin:
        for topic in (first, onward):
            admin.create_topic(topic, queues=1)
        with (
            Producer("g", client=client, hooks=[seen.hook]) as producer,
            PushConsumer(
                f"python_{unique}",
                client=client,
                hooks=[seen.hook],
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            ) as consumer,
        ):
            consumer.subscribe(first)

            def handler(messages: Sequence[MessageExt]) -> None:
                with seen.tracer.start_as_current_span("work"):
                    producer.send(Message(onward, b"on from Python"))
                consumer.stop()

            running = threading.Thread(target=java)
            running.start()
            consumer.run(handler)
            running.join(100)
    (process,), (work,), (create,), (send,) = (
        seen.spans(name) for name in (f"process {first}", "work", f"create {onward}", f"send {onward}")
    )
    assert parent_of(process) == (TRACE, JAVA_SPAN)
    assert parent_of(work) == ids(process)
    assert parent_of(create) == ids(work)
    assert parent_of(send) == ids(create)
    trace_id, span_id = ids(create)
    assert trace_id == TRACE
    lines = printed[0].splitlines()
    assert "sent SEND_OK" in lines
    assert f"received 00-{trace_id:032x}-{span_id:016x}-01 java=1 on from Python" in lines
