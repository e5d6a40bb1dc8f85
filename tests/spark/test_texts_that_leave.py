"""Texts that leave the source can be encoded and steer no terminal: errors, logs, summaries and figures quote peers."""

import logging
import pickle
import pkgutil
from importlib import import_module

import pytest

import pyrmq_spark
from pyrmq_core import BrokerNotFound, MessageQueue, check_id
from pyrmq_spark.spark_errors import RocketMQSparkError, as_spark_error
from pyrmq_spark.stream.lag_listener import LagListener, QueryFigures
from pyrmq_spark.stream.progress import QueueLag
from pyrmq_spark.write.commit_message import PartitionWritten
from pyrmq_spark.write.writers import failure_line, summary_line

# Half of a character, a clearing of the screen, a mark that turns text around, a line end of Unicode and of a terminal.
HOSTILE = "broker\ud800\x1b[2J\u202e\u2028\r\n\x9b"


def check(text: str) -> None:
    text.encode()
    assert not set(text) & set(HOSTILE.removeprefix("broker").replace("[2J", ""))


def test_an_error_quotes_a_peer_without_what_steers_a_terminal() -> None:
    def lost() -> None:
        check_id(MessageQueue("orders", HOSTILE, 0), 5, HOSTILE, "ID5")

    def away() -> None:
        raise BrokerNotFound(f"no known route names broker {HOSTILE}", broker_name=HOSTILE)

    for call in (lost, away):
        with pytest.raises(RocketMQSparkError) as raised, as_spark_error(f"orders/{HOSTILE}/0"):
            call()
        check(str(raised.value))
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_error_of_many_tries_is_not_cut() -> None:
    assert len(str(RocketMQSparkError("x" * 100_000))) == 100_000


def test_a_summary_and_figures_quote_a_peer_in_the_same_way() -> None:
    report = PartitionWritten(
        partition=0,
        rows=1,
        bytes=1,
        requests=1,
        retries=0,
        perhaps_repeated=0,
        dead_lettered=0,
        rows_by_queue={f"orders/{HOSTILE}/0": 1},
        rows_by_status={},
        is_repeat=True,
        writer="q",
        number=0,
        ranges=(),
    )
    check(summary_line([report]))
    check(failure_line([report], 2, "comes again"))
    assert "; 1 task is a repeat: what its earlier attempts sent stays" in summary_line([report])
    assert "; 2 tasks are repeats: what their earlier attempts sent stays" in summary_line([report, report])
    listener = LagListener()
    queue = MessageQueue("orders", HOSTILE, 0)
    listener._queries["q"] = QueryFigures(queues=(QueueLag(queue, 1, 2),))
    check(listener.prometheus_text().replace("\n", ""))


def test_every_line_of_the_logs_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    for module in pkgutil.walk_packages(pyrmq_spark.__path__, "pyrmq_spark."):
        if "python_path" not in module.name:
            import_module(module.name)
    loggers = [name for name in logging.Logger.manager.loggerDict if name.startswith("pyrmq_spark.")]
    mine = [logging.getLogger(name) for name in loggers if hasattr(import_module(name), "log")]
    assert len(mine) >= 10
    for logger in mine:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger.name):
            logger.warning("waiting for %s", HOSTILE)
        check(caplog.messages[0])
