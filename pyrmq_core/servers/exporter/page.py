"""`MetricsPage`: the text of a server's metrics, which is computed at most once a second.

Samples are collected in steps, between which other tasks run. The text is formatted in a worker thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pyrmq_core.servers.exporter.families import Buckets, Collect, Family, Kind

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
FRESH_SECONDS: Final = 1.0
SAMPLES_BETWEEN_CHECKPOINTS: Final = 50
KINDS: Final[dict[Kind, Callable[..., CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class _Families:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class MetricsPage:
    """The page of one server, shared by all requests. `common` has labels that are added to each sample."""

    def __init__(self, collect: Collect, common: dict[str, str]) -> None:
        self._collect = collect
        self._common = common
        self._text = b""
        self._made_at = -math.inf
        self._turn = trio.Lock()

    async def text(self) -> bytes:
        """Returns the page, which is computed again if it is older than a second."""
        async with self._turn:
            if trio.current_time() - self._made_at >= FRESH_SECONDS:
                metrics = [await self._metric(family) for family in self._collect()]
                registry = CollectorRegistry(auto_describe=False)
                registry.register(_Families(metrics))
                self._text = await trio.to_thread.run_sync(generate_latest, registry)
                self._made_at = trio.current_time()
            return self._text

    async def _metric(self, family: Family) -> Metric:
        names, values = (*self._common, *family.labels), tuple(self._common.values())
        metric = KINDS[family.kind](family.name, family.help, labels=names)
        add: Callable[..., None] = metric.add_metric
        bounds = [*(f"{bound:.1f}" for bound in family.bounds), "+Inf"]
        for number, sample in enumerate(family.samples):
            labels, value = (*values, *sample.labels), sample.value
            if isinstance(value, Buckets):
                add(labels, list(zip(bounds, value.counts, strict=True)), value.total)
            else:
                add(labels, value)
            if number % SAMPLES_BETWEEN_CHECKPOINTS == 0:
                await trio.lowlevel.checkpoint()
        return metric
