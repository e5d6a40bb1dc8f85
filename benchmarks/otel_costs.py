"""The cost of a send without OpenTelemetry, with it installed and not in use, with metrics, traces and both.

    python -m benchmarks otel_costs [--quick]

Each run is a process of its own that sends to one broker of ours: `send_soon` with 1,000 under way, and `send` from
one thread, of the blocking face. The figure is the processor time of that process a message, after a quarter of the
messages to warm up. The kinds of run go in turn, every second round backwards (A B C D E, E D C B A), and each is
compared with the first one of its round, for which OpenTelemetry cannot be imported. The SDK's spans go to an exporter
that drops them, in its own thread; its metrics are read once, at the end.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from pyrmq_core import Message, SendResult
from pyrmq_core.blocking import Admin, Client, Producer
from tests.support.our_cluster import boot_our_cluster

KINDS: Final = ("absent", "unused", "metrics", "traces", "both")
COUNTS: Final = {"send": 3_000, "send_soon": 8_000}
ROUNDS: Final = 7
WINDOW: Final = 1000
BODY: Final = b"x" * 100
LARGE_LOG: Final = {"mappedFileSizeCommitLog": str(256 << 20), "maxStoreBytes": str(16 << 30)}


def main(*, quick: bool) -> None:
    share, rounds = (20, 2) if quick else (1, ROUNDS)
    with boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            admin.create_topic("sends", queues=4)
        print(f"{'':10} {'':8} {'us a message (least to most)':32} beside absent (spread), {rounds} rounds")
        for way, count in COUNTS.items():
            costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                    costs[kind].append(_run_alone(kind, way, cluster.nameserver.address, count // share))
            for kind in KINDS:
                ratios = [one / base for one, base in zip(costs[kind], costs["absent"], strict=True)]
                beside = "" if kind == "absent" else _spread(ratios, 2)
                print(f"{way:10} {kind:8} {_spread(costs[kind], 1):32} {beside}", flush=True)


def _spread(figures: Sequence[float], digits: int) -> str:
    median, least, most = statistics.median(figures), min(figures), max(figures)
    return f"{median:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def _run_alone(kind: str, way: str, nameserver: str, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.otel_costs", kind, way, nameserver, str(count)]
    return float(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)


def measure(kind: str, way: str, nameserver: str, count: int) -> float:
    """Returns the processor microseconds of this process a message."""
    if kind == "absent":
        sys.modules["opentelemetry"] = None  # type: ignore[assignment]
    hook, end = _hook(kind)
    hooks: list[Any] = [] if hook is None else [hook]
    work = {"send_soon": _send_soon, "send": _send}[way]
    with (
        Client(nameserver=nameserver, rpc_hooks=hooks) as client,
        Producer("costs", client=client, hooks=hooks, max_in_flight=WINDOW, send_timeout=30) as producer,
    ):
        work(producer, count // 4)
        before = time.process_time()
        work(producer, count)
        end()
        return (time.process_time() - before) * 1e6 / count


def _send_soon(producer: Producer, count: int) -> None:
    last: deque[Future[SendResult]] = deque(maxlen=WINDOW)
    for number in range(count):
        last.append(producer.send_soon(_message(number)))
    for future in last:
        future.result()


def _send(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.send(_message(number))


def _message(number: int) -> Message:
    return Message("sends", BODY, keys=f"key-{number:06d}", tags="TagA")


def _hook(kind: str) -> tuple[object | None, Callable[[], object]]:
    """Returns the hook of a kind, if it has one, and a function that has the SDK report all it has."""
    if kind == "absent":
        return None, lambda: None
    # Imported here: one kind of run must not have them.
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    from pyrmq_core.otel import Instrumentation

    if kind == "unused":
        return None, lambda: None

    class Dropping(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    reader, spans = InMemoryMetricReader(), BatchSpanProcessor(Dropping())
    provider = TracerProvider()
    provider.add_span_processor(spans)
    hook = Instrumentation(
        tracer_provider=provider,
        meter_provider=MeterProvider([reader]),
        metrics=kind in ("metrics", "both"),
        traces=kind in ("traces", "both"),
    )
    return hook, lambda: (spans.force_flush(), reader.get_metrics_data())


if __name__ == "__main__":
    print(measure(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
