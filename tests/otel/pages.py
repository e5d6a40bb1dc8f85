"""Pages for Prometheus, read by Prometheus' own parser."""

from __future__ import annotations

import socket
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Page = dict[str, list[tuple[dict[str, str], float]]]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def text_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=")
        return str(answer.read().decode())


def parsed(text: str) -> Page:
    page: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                page.setdefault(sample.name, []).append((sample.labels, sample.value))
    return page


def page_with(port: int, metric: str, value: float, **labels: str) -> Page:
    """Returns the page once a sample has the value: a page is up to a second old, and offsets are committed later."""
    deadline = time.monotonic() + 60
    while True:
        page = parsed(text_of(port))
        samples = [number for own, number in page.get(metric, []) if labels.items() <= own.items()]
        if value in samples:
            return page
        assert time.monotonic() < deadline, f"{metric}{labels} is {samples}, not {value}"
        time.sleep(0.1)
