"""Our SQL92 against RocketMQ's: each release returns the messages that our evaluator accepts."""

import uuid

import pytest

from pyrmq_core import InvalidArgument, Message, MessageQueue, ResponseError
from pyrmq_core.blocking import Admin, Producer, PullConsumer
from pyrmq_core.filtering.sql92 import parse
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.payload import decode
from tests.support.apache import ApacheCluster
from tests.support.spark import wait_readable

MESSAGES = [
    {"n": "15", "price": "2.5", "region": "eu", "done": "true"},
    {"n": "-3", "price": "2", "region": "us", "done": "false"},
    {"n": "x1", "price": "1e3", "region": "it's", "done": "TRUE"},
    {"region": "europe"},
    {"n": "15.0", "done": "yes"},
    {"a": "1"},
    {"a": "1", "n": "x"},
]
EXPRESSIONS = [
    "n = 15",
    "n <> 15",
    "n > 14",
    "n < 0",
    "n >= -3",
    "n = 15.0",
    "NOT (n = 15)",
    "n BETWEEN -5 AND 20",
    "n NOT BETWEEN 0 AND 20",
    "price > 2",
    "price > 2.0",
    "price = 1000.0",
    "region = 'eu'",
    "region <> 'eu'",
    "region IN ('eu', 'us')",
    "region NOT IN ('eu', 'us')",
    "region IS NULL",
    "region IS NOT NULL AND n IS NOT NULL",
    "region = 'it''s'",
    "done = TRUE",
    "done = FALSE",
    "done <> TRUE",
    "n = 15 OR a = 1",
    "missing = 1 OR a = 1",
    "missing = 1 AND a = 1",
    "NOT (missing = 1)",
    "a = '1'",
    "TRUE",
    "region <> missing",
    "region = a",
    "missing = absent",
    "NOT n",
    "NOT n IS NULL",
    "n = -- fifteen\n15 /* all */ AND region = 'eu'",
    "n = 015",
    "n = 0xF",
    "n = 15 bad ((",
    "- n IS NULL",
    "n >= '5'",
    "n BETWEEN 'a' AND 'c'",
    "n BETWEEN 3 AND 1",
    "n = NULL",
    "n > 0.0",
    "n = 99999999999999999999",
]
# Not before 5.0.
TEXT_EXPRESSIONS = [
    "region CONTAINS 'u'",
    "region STARTSWITH 'eu'",
    "region ENDSWITH 'e'",
    "region NOT CONTAINS 'u'",
    "NOT (n CONTAINS '5')",
    "NOT (region STARTSWITH 'eu') AND a = 1",
]


def test_the_same_messages_pass(apache: ApacheCluster) -> None:
    topic = f"t_{uuid.uuid4().hex[:8]}"
    nameserver = apache.nameserver.address
    queue = MessageQueue(topic, "broker-a", 0)
    with (
        Admin(nameserver=nameserver, timeout=20) as admin,
        Producer("setup", nameserver=nameserver, send_timeout=20) as producer,
    ):
        admin.create_topic(topic, queues=1)
        messages = [Message(topic, b"%d" % n, properties=properties) for n, properties in enumerate(MESSAGES)]
        producer.send_batch(messages, queue=queue)
    wait_readable(nameserver, topic, len(MESSAGES))
    differences = []
    with PullConsumer("pyrmq-tests", nameserver=nameserver, timeout=20) as consumer:
        for expression in EXPRESSIONS + (TEXT_EXPRESSIONS if apache.version.startswith("5") else []):
            try:
                passes = parse(expression)
            except InvalidArgument:
                with pytest.raises(ResponseError) as refused:
                    consumer.check_sql(queue, expression)
                assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED, expression
                continue
            consumer.check_sql(queue, expression)
            with consumer.read(queue, 0, len(MESSAGES), sql=expression) as pulls:
                given = [int(message.body) for pull in pulls for message in decode(pull)]
            pulled = [int(message.body) for message in consumer.pull(queue, 0, sql=expression).messages]
            assert pulled == given, expression
            ours = [n for n, properties in enumerate(MESSAGES) if passes(properties)]
            if given != ours:
                differences.append(f"{expression}: RocketMQ gives {given}, ours {ours}")
    assert differences == []
