"""Makes Spark's Python processes load PySpark faster. Python runs this file before anything else.

Spark puts `pyspark.zip` and py4j's archive first on the path of these processes. They hold no bytecode, so each process
compiles PySpark, for half a second of a processor. If the archives belong to a PySpark that pip installed, the same
modules lie beside them, compiled. The archives are then removed from the path, unless the rest of it would lead to
another PySpark.

Spark makes its tasks compute with one thread (`OMP_NUM_THREADS`), but not the process of a query. In a query's process
OpenBLAS, which PyArrow loads with NumPy, starts a thread for each processor, and these spin for a tenth of a second. So
this file sets `OMP_NUM_THREADS` to 1 there, unless it has a value. The process of a query also collects garbage more
rarely: while it loads modules, nearly nothing is garbage, and the collections took 40 ms.

Spark's daemon forks a worker for each task in Python that finds no idle one, and ends a worker that was idle for a
minute. The daemon loads nothing before it forks, so each worker loads PySpark and the libraries of this source again.
This file loads them in the daemon (`load_before_forks`). A worker that Spark does not need any more ends without a
traceback (`end_quietly`).

A process has one `sitecustomize`: a file that this one hides is run after it. This file loads nothing of `pyrmq_spark`.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

ARCHIVE = os.path.join("python", "lib", "pyspark.zip")
DAEMON = "pyspark.daemon"
QUERY_PROGRAM = "pyspark.sql.streaming.python_streaming_source_runner"
# The workers that load this source's libraries: those of its tasks, and those that plan a read.
READERS = ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read")
JEMALLOC_SETTINGS = "JE_ARROW_MALLOC_CONF"
# The new objects before a garbage collection, by default 700 or 2,000. With this number some MB of garbage may wait.
OBJECTS_BEFORE_COLLECTION = 100_000


def without_archives(path: list[str]) -> list[str]:
    """Returns the path without the archives of an installed PySpark, or unchanged if it must keep them."""
    for entry in path:
        if entry.endswith(ARCHIVE):
            folder, installed = os.path.dirname(entry), os.path.join(entry.removesuffix(ARCHIVE), "__init__.py")
            remaining = [other for other in path if os.path.dirname(other) != folder or not other.endswith(".zip")]
            pyspark, py4j = (PathFinder.find_spec(name, remaining) for name in ("pyspark", "py4j"))
            if py4j is not None and pyspark is not None and pyspark.origin == installed:
                return remaining
    return path


def load_before_forks(worker_module: str) -> None:
    """Loads in Spark's daemon the modules that its workers need, so that its forks share them.

    This source itself is not loaded, since a session may ship another release of it to its tasks (`addPyFile`). Nothing
    is loaded on macOS, where NumPy may not be used after a fork. Nothing is loaded either if `OMP_NUM_THREADS` is not
    1: then OpenBLAS, which NumPy loads, would start threads, which forks do not inherit.
    """
    if sys.platform != "linux" or os.environ.get("OMP_NUM_THREADS") != "1":
        return
    # PyArrow's jemalloc, which is not its default memory pool, would start a thread that no fork inherits.
    os.environ.setdefault(JEMALLOC_SETTINGS, "background_thread:false")
    for module in (worker_module, *(("numpy", "pyarrow", "trio") if worker_module in READERS else ())):
        with suppress(Exception):  # the worker fails to load it, too, and says so
            import_module(module)
    if "numpy.random" in sys.modules:  # NumPy before 2.0: forks would otherwise share one sequence of numbers
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.collect()
    gc.freeze()


def end_quietly() -> None:
    """Keeps Spark's daemon from printing a traceback for a worker whose socket Spark has closed.

    Spark closes the socket of a worker that was idle for a minute, or whose task was cut short. The worker then reports
    the end of its input, which fails over a socket of the file system, but never over TCP. An error of a task still
    reaches Spark, since the socket is open then.
    """
    import traceback

    print_exc = traceback.print_exc
    if print_exc.__name__ == "print_unless_spark_hung_up":
        return

    def print_unless_spark_hung_up(*arguments: Any, **options: Any) -> None:
        if not _spark_hung_up(sys.exception()):
            print_exc(*arguments, **options)

    traceback.print_exc = print_unless_spark_hung_up


def _spark_hung_up(error: BaseException | None) -> bool:
    # Only errors of the daemon's own code are hidden, not those of a task.
    if not isinstance(error, BrokenPipeError | ConnectionResetError) or error.__traceback__ is None:
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return getattr(last.tb_frame.f_globals.get("__spec__"), "name", "") == DAEMON


def run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != here])
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if DAEMON in sys.orig_argv:
        end_quietly()
    if sys.orig_argv[-1:] == [QUERY_PROGRAM]:
        gc.set_threshold(OBJECTS_BEFORE_COLLECTION, *gc.get_threshold()[1:])
    sys.path[:] = without_archives(sys.path)
    run_hidden()
    if sys.orig_argv[-2:-1] == [DAEMON]:
        load_before_forks(sys.orig_argv[-1])
