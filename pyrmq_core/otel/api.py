"""The OpenTelemetry API. Importing it without the library raises `MissingLibrary`, which names the extra."""

from __future__ import annotations

from pyrmq_core.errors import MissingLibrary

try:
    from opentelemetry import context, metrics, propagate, trace
except ModuleNotFoundError as missing:
    raise MissingLibrary(
        f'pyrmq_core.otel needs {missing.name}, which is not installed: pip install "pyrmq-spark[otel]"'
    ) from missing

__all__ = ["context", "metrics", "propagate", "trace"]
