"""The errors' tree: every class is drawn, none is lost on the way to another process, each states its outcome."""

import copy
import inspect
import pickle

import pytest

from pyrmq_core import errors
from pyrmq_core.errors import (
    Attempt,
    BatchFailed,
    BrokerNotFound,
    CallTimeout,
    ConnectFailed,
    DataLost,
    InvalidMessage,
    NoRoute,
    Outcome,
    QueueNotFound,
    ResponseError,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.model import MessageQueue

TRIED = Attempt("broker-a", "127.0.0.1:10911", 0.5, Outcome.PERHAPS_STORED, "cut")
QUEUE = MessageQueue("orders", "broker-a", 0)

EXAMPLES: list[RocketMQError] = [
    InvalidMessage("the body is empty"),
    NoRoute("no route", topic="orders"),
    BrokerNotFound("no such broker", broker_name="broker-z"),
    ResponseError("refused", code=14, remark="disk full", address="127.0.0.1:10911"),
    ConnectFailed("nothing listens", address="127.0.0.1:1"),
    CallTimeout("silent", address="127.0.0.1:1", request_left=True),
    DataLost("gone", queue=QUEUE, start=1, end=5, min_offset=3, max_offset=9),
    SendFailed("failed", outcome=Outcome.PERHAPS_STORED, attempts=[TRIED]),
    BatchFailed("failed in part", outcome=Outcome.STORED, attempts=[TRIED], parts=[[], []]),
    QueueNotFound("no such queue", outcome=Outcome.NOT_STORED, attempts=[TRIED], queue=QUEUE),
]


def classes() -> list[type[RocketMQError]]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, RocketMQError)]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes(error: RocketMQError) -> None:
    """A process pool that cannot unpickle a worker's error waits for ever."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert (other.outcome, other.attempts) == (error.outcome, error.attempts)


def test_every_class_is_drawn_once_in_its_place() -> None:
    drawing = errors.__doc__ or ""
    lines = [
        line.strip("│├└─ ").split()[0]
        for line in drawing.splitlines()
        if set(line) & set("├└") or "RocketMQError" in line
    ]
    assert sorted(lines) == sorted(kind.__name__ for kind in classes())


def test_conditions_are_stable_words() -> None:
    for kind in classes():
        assert kind.condition.startswith("RMQ_")
        assert kind.__doc__


def test_an_attempt_reads_as_a_line() -> None:
    assert str(TRIED) == "broker-a (127.0.0.1:10911) after 0.50 s: cut [perhaps stored]"
