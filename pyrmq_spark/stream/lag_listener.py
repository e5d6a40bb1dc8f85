"""`LagListener`: lag and batch figures of every query of a session, for Prometheus and OpenTelemetry.

The figures come from each query's last progress, so no server is queried for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyrmq_core import visible_text
from pyrmq_spark.pyspark_releases import has_admission_control
from pyrmq_spark.stream.progress import QueueLag, lag

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

# Beyond this many queries, ended queries are dropped. Until then their last batch is shown.
QUERIES_KEPT: Final = 100
METER: Final = "pyrmq_spark"
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """The figures of the queries with one name, or of the query with one id if it has no name.

    `failures`, `batches` and `rows` are sums since the listener was added. `batch_rows` and later fields describe the
    last batch.
    """

    active: bool = True
    failures: int = 0
    batches: int = 0
    rows: int = 0
    batch_rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    queues: tuple[QueueLag, ...] = ()


class Figure(NamedTuple):
    """A metric: its names for Prometheus and for OpenTelemetry, and a function that returns its values for a query."""

    prometheus: str
    otel: str
    unit: str
    help: str
    values: Callable[[QueryFigures], Iterable[tuple[Labels, float]]]

    @property
    def is_counter(self) -> bool:
        return self.prometheus.endswith("_total")


def _value(name: str) -> Callable[[QueryFigures], Iterable[tuple[Labels, float]]]:
    return lambda figures: [({}, getattr(figures, name))]


def _lags(figures: QueryFigures) -> Iterator[tuple[Labels, float]]:
    for queue_lag in figures.queues:
        queue = queue_lag.queue
        yield {"topic": queue.topic, "broker": queue.broker_name, "queue": str(queue.queue_id)}, queue_lag.behind


FIGURES: Final = (
    Figure("lag_messages", "lag", "{message}", "Messages between the query and the end of a queue.", _lags),
    Figure("batch_rows", "batch.rows", "{row}", "Rows of the last batch.", _value("batch_rows")),
    Figure("batch_seconds", "batch.duration", "s", "Duration of the last batch.", _value("batch_seconds")),
    Figure(
        "rows_per_second", "rate", "{row}/s", "Rows processed a second in the last batch.", _value("rows_per_second")
    ),
    Figure("rows_total", "rows", "{row}", "Rows of all batches.", _value("rows")),
    Figure("batches_total", "batches", "{batch}", "Batches with rows or without.", _value("batches")),
    Figure("failures_total", "failures", "{failure}", "Ends of the query by an error.", _value("failures")),
    Figure("active", "active", "1", "1 while the query runs, else 0.", _value("active")),
)


class LagListener(StreamingQueryListener):
    """A listener that keeps each query's lag and last batch's figures: `spark.streams.addListener(LagListener())`.

    `prometheus_text()` returns them for Prometheus. With `meter_provider` they are also metrics of OpenTelemetry. A
    query is named by its `queryName`, or by its id. The lag covers sources `rocketmq`, and needs PySpark 4.2 or later.
    """

    def __init__(self, *, meter_provider: MeterProvider | None = None) -> None:
        self._queries: dict[str, QueryFigures] = {}
        self._names: dict[str, str] = {}  # by the run's id, since the event of its end has no name
        if meter_provider is not None:
            self._observe(meter_provider)

    def prometheus_text(self) -> str:
        """Returns the figures in Prometheus' text format, in which names begin with `spark_rocketmq_`."""
        lines = []
        for figure in FIGURES:
            name = f"spark_rocketmq_{figure.prometheus}"
            lines += [f"# HELP {name} {figure.help}", f"# TYPE {name} {'counter' if figure.is_counter else 'gauge'}"]
            for labels, value in self._samples(figure):
                text = ",".join(f'{label}="{_escaped(word)}"' for label, word in labels.items())
                lines.append(f"{name}{{{text}}} {float(value)!r}")
        return "\n".join(lines) + "\n"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        name = event.name or str(event.id)
        self._names[str(event.runId)] = name
        self._set(name, replace(self._queries.get(name, QueryFigures()), active=True))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = json.loads(event.progress.json)
        name = progress.get("name") or str(progress.get("id"))
        rows = int(progress.get("numInputRows") or 0)
        figures = self._queries.get(name, QueryFigures())
        queues = tuple(lag(event)) if has_admission_control() else ()
        self._set(
            name,
            replace(
                figures,
                batches=figures.batches + 1,
                rows=figures.rows + rows,
                batch_rows=rows,
                rows_per_second=_number(progress.get("processedRowsPerSecond")),
                batch_seconds=_number(progress.get("batchDuration")) / 1000,
                queues=queues,
            ),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Does nothing, since the figures of an idle query stay the same."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        name = self._names.pop(str(event.runId), str(event.id))
        figures = self._queries.get(name, QueryFigures())
        self._set(name, replace(figures, active=False, failures=figures.failures + (event.exception is not None)))

    def _set(self, name: str, figures: QueryFigures) -> None:
        self._queries[name] = figures
        ended = [other for other, query in self._queries.items() if not query.active and other != name]
        for other in ended[: max(0, len(self._queries) - QUERIES_KEPT)]:
            del self._queries[other]

    def _samples(self, figure: Figure) -> Iterator[tuple[Labels, float]]:
        for name, figures in list(self._queries.items()):
            for labels, value in figure.values(figures):
                yield {"query": name, **labels}, value

    def _observe(self, provider: MeterProvider) -> None:
        from opentelemetry.metrics import Observation

        def observer(figure: Figure) -> Callable[[CallbackOptions], Iterable[Observation]]:
            return lambda options: [Observation(value, labels) for labels, value in self._samples(figure)]

        meter = provider.get_meter(METER)
        for figure in FIGURES:
            create = meter.create_observable_counter if figure.is_counter else meter.create_observable_gauge
            create(f"pyrmq.spark.{figure.otel}", [observer(figure)], figure.unit, figure.help)


def _number(value: Any) -> float:
    # Spark reports NaN or nothing for a batch without rows.
    number = float(value or 0)
    return number if number == number else 0.0


def _escaped(text: str) -> str:
    return visible_text(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
