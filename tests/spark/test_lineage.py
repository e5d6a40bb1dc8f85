"""Run events of OpenLineage, without a session: from progress as Spark reports it, for OpenLineage's own classes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyrmq_core import MessageQueue, MissingLibrary
from pyrmq_spark import LineageListener
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream.lineage_listener import ERROR_CHARACTERS, RUNS_KEPT
from pyrmq_spark.stream.stream_offset import StreamOffset
from tests.support.apart import installed_apart
from tests.support.maven import ApacheUnavailable

RUN = "012c24cc-fe8f-41f3-bda0-9365c441e2fe"
OPENLINEAGE = (
    "openlineage-python==1.54.0",
    "httpx2==2.16.2",
    "httpcore2==2.16.2",
    "truststore==0.10.5",
    "attrs==26.1.0",
    "python-dateutil==4.0.0",
    "six==1.17.0",
)
ORDERS = {"namespace": "rocketmq://ns1:9876", "name": "orders"}

# Passes the events to the client by the listener's own function; the client appends them to a file.
CLIENT_PROGRAM = """
import json, sys
from openlineage.client.facet_v2 import error_message_run, job_type_job
from pyrmq_spark.stream.lineage_listener import LineageListener, _client_emit
emit = _client_emit()
for line in sys.stdin:
    event = json.loads(line)
    for facets, name, kind in (
        (event["job"]["facets"], "jobType", job_type_job.JobTypeJobFacet),
        (event["run"]["facets"], "errorMessage", error_message_run.ErrorMessageRunFacet),
    ):
        if name in facets:
            fields = {field: value for field, value in facets[name].items() if field[0] != "_"}
            assert kind(**fields)._schemaURL == facets[name]["_schemaURL"]
    emit(event)
"""


def started(name: str | None = "copy", run: str = RUN) -> Any:
    return SimpleNamespace(id="id", runId=run, name=name, timestamp="2026-11-27T10:00:00.000Z")


def progressed(time: str, *topics: str, name: str | None = "copy", run: str = RUN) -> Any:
    offsets = StreamOffset({MessageQueue(topic, "broker-a", queue): 7 for topic in topics for queue in (0, 1)})
    sources = [{"endOffset": json.dumps(offsets.to_json())}] if topics else [{"endOffset": "5"}]
    progress = {"id": "id", "runId": run, "name": name, "timestamp": f"2026-11-27T{time}Z", "sources": sources}
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


def idle(time: str) -> Any:
    return SimpleNamespace(id="id", runId=RUN, timestamp=f"2026-11-27T{time}Z")


def ended(exception: str | None = None, run: str = RUN) -> Any:
    return SimpleNamespace(id="id", runId=run, exception=exception)


def run_of_a_query(listener: LineageListener) -> None:
    """Passes a run of nine minutes that ends by an error."""
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed("10:00:01.000", "orders"))
    listener.onQueryProgress(progressed("10:00:02.000", "orders"))
    listener.onQueryProgress(progressed("10:00:03.000", "orders", "returns"))
    listener.onQueryProgress(progressed("10:01:02.999", "orders", "returns"))
    listener.onQueryIdle(idle("10:09:00.000"))
    listener.onQueryTerminated(ended("lost" * ERROR_CHARACTERS))


def test_a_run_from_its_start_to_its_end() -> None:
    events: list[dict[str, Any]] = []
    listener = LineageListener(
        events.append, outputs={"copy": ["paid", ("s3://lake", "paid")]}, nameServer="ns1:9876;ns2:9876"
    )
    listener.onQueryIdle(idle("09:00:00.000"))  # of a run that is not known
    run_of_a_query(listener)
    assert [(event["eventType"], event["eventTime"][11:19]) for event in events[:-1]] == [
        ("START", "10:00:00"),
        ("RUNNING", "10:00:01"),
        ("RUNNING", "10:00:03"),  # a topic came
        ("RUNNING", "10:09:00"),
    ]
    assert [[dataset["name"] for dataset in event["inputs"]] for event in events] == [["orders"]] * 2 + [
        ["orders", "returns"]
    ] * 3
    assert events[0]["inputs"] == [ORDERS]
    assert all(
        event["outputs"] == [ORDERS | {"name": "paid"}, {"namespace": "s3://lake", "name": "paid"}] for event in events
    )
    assert {event["run"]["runId"] for event in events} == {RUN}
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("spark", "copy")}
    error = events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert (events[-1]["eventType"], len(error)) == ("FAIL", ERROR_CHARACTERS)


def test_inputs_that_are_declared_count_alone() -> None:
    """The offsets of a committed read are those of its manifest."""
    events: list[dict[str, Any]] = []
    listener = LineageListener(events.append, inputs={"copy": ["orders"]}, namespace="shop", nameServer="ns1:9876")
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed("10:00:01.000", "orders-committed"))
    listener.onQueryTerminated(ended())
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert all(event["inputs"] == [ORDERS] and event["job"]["namespace"] == "shop" for event in events)


def test_a_batch_job_is_a_run_with_its_error() -> None:
    events: list[dict[str, Any]] = []
    listener = LineageListener(
        events.append,
        inputs={"nightly": ["orders"]},
        outputs={"nightly": [("s3://lake", "paid")]},
        nameServer="ns1:9876",
    )
    with listener.batch_job("nightly"):
        assert [event["eventType"] for event in events] == ["START"]
    with pytest.raises(KeyError), listener.batch_job("nightly"):
        raise KeyError("paid")
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    assert events[3]["run"]["facets"]["errorMessage"]["message"] == "KeyError: 'paid'"
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in events} == {"BATCH"}
    assert all(event["inputs"] == [ORDERS] for event in events)
    assert [event["run"]["runId"] for event in events[::2]] == [event["run"]["runId"] for event in events[1::2]]
    assert events[0]["run"]["runId"] != events[2]["run"]["runId"]
    with pytest.raises(Exception, match="name its datasets in inputs or outputs"), listener.batch_job("other"):
        pass
    assert len(events) == 4


def test_queries_of_other_sources_are_left_out_and_one_that_fails_early_is_not() -> None:
    events: list[dict[str, Any]] = []
    listener = LineageListener(events.append, nameServer="ns1:9876")
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed("10:00:01.000"))
    listener.onQueryTerminated(ended("lost"))
    assert events == []
    listener.onQueryStarted(started(None))
    listener.onQueryTerminated(ended("no broker"))
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [("START", "id"), ("FAIL", "id")]


def test_a_listener_that_comes_later_reports_the_run_from_then_on() -> None:
    events: list[dict[str, Any]] = []
    listener = LineageListener(events.append, nameServer="ns1:9876")
    listener.onQueryTerminated(ended(run="another"))
    listener.onQueryProgress(progressed("10:00:01.000", "orders", name=None))
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [("START", "id"), ("RUNNING", "id")]


def test_an_event_that_is_not_emitted_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def emit(event: dict[str, Any]) -> None:
        raise ConnectionError("no catalog")

    listener = LineageListener(emit, nameServer="ns1:9876")
    run_of_a_query(listener)
    lines = [record.getMessage() for record in caplog.records]
    kinds = ("START", "RUNNING", "RUNNING", "RUNNING", "FAIL")
    assert lines == [
        f"query copy: its lineage event {kind} is not emitted: ConnectionError('no catalog')" for kind in kinds
    ]


def test_runs_without_an_end_are_not_kept_for_ever() -> None:
    events: list[dict[str, Any]] = []
    listener = LineageListener(events.append, nameServer="ns1:9876")
    for number in range(RUNS_KEPT + 1):
        listener.onQueryStarted(started(run=f"run {number}"))
    listener.onQueryTerminated(ended(run="run 0"))
    assert events == []
    listener.onQueryTerminated(ended(run="run 1"))
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]


def test_what_a_listener_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(RocketMQSparkError, match="no NameServer is named"):
        LineageListener(print)
    with pytest.raises(MissingLibrary, match=r"emit=\.\.\., or openlineage-python"):
        LineageListener(nameServer="ns1:9876")


def test_openlineages_client_takes_the_events_as_they_are(tmp_path: Path) -> None:
    """Its classes refuse unknown fields, times and ids; the file holds what a catalog would get."""
    try:
        packages = installed_apart("openlineage", OPENLINEAGE)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    events: list[dict[str, Any]] = []
    run_of_a_query(LineageListener(events.append, outputs={"copy": ["paid"]}, nameServer="ns1:9876"))
    environment = os.environ | {
        "PYTHONPATH": str(packages),
        "OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
        ),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLIENT_PROGRAM],
        input="\n".join(map(json.dumps, events)),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [facts(event) for event in written] == [facts(event) for event in events]


def facts(event: dict[str, Any]) -> dict[str, Any]:
    """Returns an event without the empty and additional facets of the client."""
    facets = {name: facet for name, facet in event["run"]["facets"].items() if name == "errorMessage"}
    datasets = {side: [(data["namespace"], data["name"]) for data in event[side]] for side in ("inputs", "outputs")}
    return event | {"run": event["run"] | {"facets": facets}} | datasets
