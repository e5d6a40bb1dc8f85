"""`LineageListener`: run events of OpenLineage for streaming queries and batch jobs, with topics as datasets.

Spark's progress names the topics that a query reads, but neither their cluster nor the topic of a sink, so these
are arguments. Spark reports no batch job to Python, so a `with` block marks its beginning and end.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyrmq_core import MissingLibrary, __version__, line_logger
from pyrmq_spark.options import hide_secrets
from pyrmq_spark.spark_errors import InvalidOption, as_spark_error
from pyrmq_spark.stream.progress import connection_of, ends_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = line_logger(__name__)

# A topic of the cluster, or another dataset's namespace and name.
Dataset = str | tuple[str, str]
Event = dict[str, Any]
Emit = Callable[[Event], object]

PRODUCER: Final = f"pkg:pypi/pyrmq-spark@{__version__}"
SPECIFICATION: Final = "https://openlineage.io/spec"
RUN_EVENT: Final = f"{SPECIFICATION}/2-0-2/OpenLineage.json#/$defs/RunEvent"
JOB_TYPE: Final = {
    "_producer": PRODUCER,
    "_schemaURL": f"{SPECIFICATION}/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "integration": "SPARK",
}
ERROR_MESSAGE: Final = {
    "_producer": PRODUCER,
    "_schemaURL": f"{SPECIFICATION}/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "programmingLanguage": "PYTHON",
}
ERROR_CHARACTERS: Final = 4000
# The most runs that are kept, since Spark may drop the event of a run's end.
RUNS_KEPT: Final = 1000


@dataclass(slots=True)
class QueryRun:
    """One run of a query or batch job, from its start to its end: its name, and the datasets reported so far."""

    run_id: str
    job: str
    started: str
    inputs: Sequence[Dataset]
    outputs: Sequence[Dataset]
    has_progress: bool = False
    reported: datetime | None = None
    processing_type: str = "STREAMING"

    @property
    def is_foreign(self) -> bool:
        return self.has_progress and not self.inputs and not self.outputs


class LineageListener(StreamingQueryListener):
    """A listener that emits run events of OpenLineage: `spark.streams.addListener(LineageListener(nameServer="..."))`.

    `emit` receives an event as a dict. By default `openlineage-python` sends events as its own configuration says. A
    topic's dataset has the namespace `rocketmq://` with the first NameServer, and the topic's name on brokers.
    `outputs` has, by `queryName`, the datasets that a query writes: a topic, or namespace and name of another dataset.
    `inputs` has the datasets that it reads, in place of the topics of its progress. Batch jobs are listed in both by
    the job's name. RUNNING is emitted for new topics, and every `running_every` seconds at most. An event that cannot
    be emitted is logged, and the query continues.
    """

    def __init__(
        self,
        emit: Emit | None = None,
        *,
        inputs: Mapping[str, Sequence[Dataset]] | None = None,
        outputs: Mapping[str, Sequence[Dataset]] | None = None,
        namespace: str = "spark",
        running_every: float = 60.0,
        **options: str,
    ) -> None:
        options = hide_secrets(options)
        with as_spark_error("lineage"):
            connection = connection_of(options)
        address = connection.name_server.partition(";")[0] or urlsplit(connection.name_server_url or "").netloc
        self._cluster = f"rocketmq://{address}"
        self._emit = emit or _client_emit()
        self._inputs = inputs or {}
        self._outputs = outputs or {}
        self._namespace = namespace
        self._running_every = running_every
        self._runs: dict[str, QueryRun] = {}

    @contextmanager
    def batch_job(self, job: str) -> Iterator[None]:
        """Reports the `with` block as a run of this job: START before it, COMPLETE or FAIL with its error after it.

        Raises `InvalidOption` for a job that neither `inputs` nor `outputs` names.
        """
        with as_spark_error("lineage"):
            if job not in self._inputs and job not in self._outputs:
                raise InvalidOption(f"batch_job({job!r}): name its datasets in inputs or outputs of the listener")
        now = datetime.now(UTC)
        inputs, outputs = self._inputs.get(job, ()), self._outputs.get(job, ())
        run = QueryRun(str(uuid.uuid4()), job, now.isoformat(), inputs, outputs, reported=now, processing_type="BATCH")
        self._report(run, "START", run.started)
        try:
            yield
        except BaseException as error:
            self._report(run, "FAIL", datetime.now(UTC).isoformat(), f"{type(error).__name__}: {error}")
            raise
        self._report(run, "COMPLETE", datetime.now(UTC).isoformat())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Records the run. Its START is emitted with the next event, since Spark waits for this method."""
        self._note(str(event.runId), event.name or str(event.id), event.timestamp)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = json.loads(event.progress.json)
        run_id, time = progress["runId"], progress["timestamp"]
        run = self._runs.get(run_id) or self._note(run_id, progress.get("name") or progress["id"], time)
        run.has_progress, inputs = True, run.inputs
        if run.job not in self._inputs:
            run.inputs = sorted({queue.topic for queue in ends_of(progress)})
        self._report_running(run, time, is_new=run.inputs != inputs)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        if run := self._runs.get(str(event.runId)):
            self._report_running(run, event.timestamp)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        if run := self._runs.pop(str(event.runId), None):
            self._report(run, "FAIL" if event.exception else "COMPLETE", datetime.now(UTC).isoformat(), event.exception)

    def _note(self, run_id: str, job: str, started: str) -> QueryRun:
        run = QueryRun(run_id, job, started, self._inputs.get(job, ()), self._outputs.get(job, ()))
        self._runs[run_id] = run
        while len(self._runs) > RUNS_KEPT:
            del self._runs[next(iter(self._runs))]
        return run

    def _report_running(self, run: QueryRun, time: str, *, is_new: bool = False) -> None:
        now = datetime.fromisoformat(time)
        if is_new or run.reported is None or (now - run.reported).total_seconds() >= self._running_every:
            self._report(run, "RUNNING", time)
            run.reported = now

    def _report(self, run: QueryRun, event_type: str, time: str, error: str | None = None) -> None:
        if run.is_foreign:
            return
        events = [self._event(run, event_type, time, error)]
        if run.reported is None:
            events.insert(0, self._event(run, "START", run.started))
        for event in events:
            try:
                self._emit(event)
            except Exception as reason:  # raised by the user's function, or by the client's transport
                log.warning("query %s: its lineage event %s is not emitted: %r", run.job, event["eventType"], reason)

    def _event(self, run: QueryRun, event_type: str, time: str, error: str | None = None) -> Event:
        job_type = {**JOB_TYPE, "processingType": run.processing_type}
        facets = {"errorMessage": {**ERROR_MESSAGE, "message": error[:ERROR_CHARACTERS]}} if error else {}
        return {
            "eventType": event_type,
            "eventTime": time,
            "producer": PRODUCER,
            "schemaURL": RUN_EVENT,
            "run": {"runId": run.run_id, "facets": facets},
            "job": {"namespace": self._namespace, "name": run.job, "facets": {"jobType": job_type}},
            "inputs": [self._dataset(dataset) for dataset in run.inputs],
            "outputs": [self._dataset(dataset) for dataset in run.outputs],
        }

    def _dataset(self, dataset: Dataset) -> dict[str, str]:
        namespace, name = (self._cluster, dataset) if isinstance(dataset, str) else dataset
        return {"namespace": namespace, "name": name}


def _client_emit() -> Emit:
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    except ImportError:
        raise MissingLibrary("LineageListener needs emit=..., or openlineage-python, which is not installed") from None
    client = OpenLineageClient()

    def emit(event: Event) -> None:
        client.emit(
            RunEvent(
                eventType=RunState(event["eventType"]),
                eventTime=event["eventTime"],
                producer=event["producer"],
                run=Run(**event["run"]),
                job=Job(**event["job"]),
                inputs=[InputDataset(**dataset) for dataset in event["inputs"]],
                outputs=[OutputDataset(**dataset) for dataset in event["outputs"]],
            )
        )

    return emit
