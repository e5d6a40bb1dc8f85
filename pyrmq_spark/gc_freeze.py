"""Hides loaded modules from the garbage collector, which Spark runs after each step of its Python processes.

It also keeps these processes from printing a traceback when Spark ends them (`end_quietly`). With `session_settings()`
the file `sitecustomize.py` calls these functions when such a process starts.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyrmq_spark.python_path.sitecustomize import end_quietly

_modules_frozen = 0


def freeze_loaded_objects() -> None:
    """Moves every object loaded so far out of the garbage collector's reach (`gc.freeze`), in Spark's own processes.

    It does nothing if no module was loaded since the last call, or in a process that Spark did not start. It also makes
    the process print no traceback at its end (`end_quietly`).

    Each step of a Spark job calls it twice. The call before the step's modules are loaded shortens Python's own
    collections meanwhile. The call after it shortens the collection that Spark runs at the end of the step, by 10 ms on
    the driver's side and by 20 ms in a task. That is a twentieth of the processor time of a job of half a million rows.
    """
    global _modules_frozen
    if len(sys.modules) > _modules_frozen and started_by_spark():
        _modules_frozen = len(sys.modules)
        gc.freeze()
        end_quietly()


@contextmanager
def loading() -> Iterator[None]:
    """Pauses the garbage collector while modules are loaded, in Spark's own processes, and then freezes their objects.

    A query's process takes a tenth less time to load the source. Without the freeze, the next collection would walk
    through all objects loaded meanwhile.
    """
    if not (gc.isenabled() and started_by_spark()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        freeze_loaded_objects()
        gc.enable()


def started_by_spark() -> bool:
    """Returns whether this process runs one of PySpark's own programs (`python -m pyspark.daemon` and its forks)."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
