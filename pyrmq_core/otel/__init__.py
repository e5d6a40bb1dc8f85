"""Metrics and traces of a client through the OpenTelemetry API (extra `otel`), as hooks that users add.

Only the API is imported. It does nothing in a program without an OpenTelemetry SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.otel.instrumentation import Instrumentation

__all__ = ["Instrumentation"]

_LAZY: Final = {
    "pyrmq_core.otel.instrumentation": "Instrumentation",
}

if not TYPE_CHECKING:  # without this, a type checker would accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
