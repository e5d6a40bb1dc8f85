"""CloudEvents as columns: the reader of `pyrmq_core.cloudevents`, for each row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pyrmq_core import InvalidArgument
from pyrmq_core.cloudevents import event_in

TEXTS: Final = ("id", "source", "type", "time", "subject", "datacontenttype", "dataschema")
TYPES: Final = {**dict.fromkeys(TEXTS, "string"), "extensions": "map<string, string>", "data": "binary"}


def cloudevents(frame: DataFrame) -> DataFrame:
    """Returns the frame with the columns of the CloudEvents in its messages, null where there is none.

    The frame needs the columns `body` and `properties`. The columns are `id`, `source`, `type`, `time`, `subject`,
    `datacontenttype` and `dataschema` (texts), `extensions` (a map of texts) and `data` (binary). All dialects are
    read: those of CloudEvents' Java SDK, Spring and EventMesh, and structured JSON. A query fails with
    `InvalidArgument` at an unreadable event. The same error is raised here if a column is missing, or already present.
    """
    if missing := [name for name in ("body", "properties") if name not in frame.columns]:
        raise InvalidArgument(f"the frame has no column {', '.join(missing)}; the source has them by default")
    if present := [name for name in TYPES if name in frame.columns]:
        raise InvalidArgument(f"the frame has a column {', '.join(present)} of its own; rename it")
    event = F.udf(_event, ", ".join(f"{name} {kind}" for name, kind in TYPES.items()), useArrow=False)
    return frame.select("*", event("properties", "body").alias("__event")).select("*", "__event.*").drop("__event")


def _event(properties: dict[str, str] | None, body: bytes | None) -> dict[str, Any] | None:
    event = event_in(properties or {}, bytes(body or b""))
    return None if event is None else {**asdict(event), "extensions": dict(event.extensions)}
