"""The walls of the house as plain functions over source texts: imports, sizes and first sentences.

Each function takes `{path from the project's root: source text}` and returns one line per fault, so that a test can
show on a wrong sample that it is able to fail.
"""

import ast
import functools
import graphlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_MODULE_LINES = 450
MAX_FUNCTION_LINES = 60
MAX_FOLDER_MODULES = 24

Sources = Mapping[str, str]

# Room -> the rooms it may import (besides itself). A room is a module or package; the longest name that fits counts.
GROUND = {"pyrmq_core.errors", "pyrmq_core.model", "pyrmq_core.lazy_names"}
BYTES = GROUND | {"pyrmq_core.protocol"}
SHARED = BYTES | {"pyrmq_core.filtering", "pyrmq_core.network"}
OF_SERVERS = {"pyrmq_core.servers.access", "pyrmq_core.servers.exporter", "pyrmq_core.servers.protocol"}
ROOMS: dict[str, set[str]] = {
    "pyrmq_core.model": set(),
    "pyrmq_core.lazy_names": set(),
    "pyrmq_core.errors": {"pyrmq_core.model"},
    "pyrmq_core.protocol": GROUND,
    "pyrmq_core.filtering": BYTES,
    "pyrmq_core.columnar": BYTES | {"pyrmq_core.filtering"},
    "pyrmq_core.committed": BYTES,
    "pyrmq_core.cloudevents": BYTES,
    "pyrmq_core.network": BYTES,
    "pyrmq_core.client": SHARED | {"pyrmq_core.columnar", "pyrmq_core.committed"},
    "pyrmq_core.servers": set(),
    "pyrmq_core.servers.protocol": BYTES,
    "pyrmq_core.servers.access": BYTES | {"pyrmq_core.network"},
    "pyrmq_core.servers.exporter": BYTES | {"pyrmq_core.network"},
    "pyrmq_core.servers.broker": SHARED | OF_SERVERS,
    "pyrmq_core.servers.nameserver": SHARED - {"pyrmq_core.filtering"} | OF_SERVERS,
    "pyrmq_core.servers.embedded": SHARED | {"pyrmq_core.servers.broker", "pyrmq_core.servers.nameserver"},
    "pyrmq_core.embedded": {"pyrmq_core.model", "pyrmq_core.network", "pyrmq_core.servers.embedded"},
    "pyrmq_core.testing": BYTES | {"pyrmq_core.network", "pyrmq_core.embedded"},
    "pyrmq_core.loop_thread": SHARED | {"pyrmq_core.client"},
    "pyrmq_core.blocking": SHARED
    | {"pyrmq_core.client", "pyrmq_core.columnar", "pyrmq_core.embedded", "pyrmq_core.loop_thread"},
    "pyrmq_core.aio": SHARED | {"pyrmq_core.client", "pyrmq_core.loop_thread"},
    "pyrmq_core.tools": set(),
    "pyrmq_core.tools.airflow": GROUND | {"pyrmq_core.aio"},
    "pyrmq_core.tools.taskiq": SHARED | {"pyrmq_core.aio", "pyrmq_core.client"},
    "pyrmq_core.tools.search": SHARED | {"pyrmq_core.client", "pyrmq_core.columnar"},
    "pyrmq_core.tools.web": SHARED | {"pyrmq_core", "pyrmq_core.client", "pyrmq_core.tools.search"},
    "pyrmq_core.otel": BYTES | {"pyrmq_core.client"},
    "pyrmq_core.tools.cli": {
        "pyrmq_core",
        "pyrmq_core.servers.broker",
        "pyrmq_core.servers.nameserver",
        "pyrmq_core.embedded",
    },
    "pyrmq_core": BYTES | {"pyrmq_core.client", "pyrmq_core.columnar", "pyrmq_core.committed", "pyrmq_core.filtering"},
    "pyrmq_spark": set(),
    "pyspark_rocketmq": {"pyrmq_spark"},
    "pyrmq_pytest": {"pyrmq_core.blocking"},
}
# The core's names that Spark's side may use, exactly: no module below these.
PUBLIC_CORE = {
    "pyrmq_core",
    "pyrmq_core.blocking",
    "pyrmq_core.cloudevents",
    "pyrmq_core.columnar",
    "pyrmq_core.embedded",
    "pyrmq_core.lazy_names",
}

# Plain functions and values: they cannot wait, look at a clock, draw lots, open anything or log.
PURE_ROOMS = (
    "pyrmq_core.model",
    "pyrmq_core.errors",
    "pyrmq_core.lazy_names",
    "pyrmq_core.protocol",
    "pyrmq_core.filtering",
    "pyrmq_core.columnar",
    "pyrmq_core.committed",
    "pyrmq_core.cloudevents",
    "pyrmq_core.client.routing",
    "pyrmq_core.client.consumer.offsets.offsets_in_memory",
    "pyrmq_core.client.consumer.pop.popped",
    "pyrmq_core.client.consumer.pop.settings",
    "pyrmq_core.client.consumer.pull.pull_errors",
    "pyrmq_core.client.consumer.pull.pull_sizes",
    "pyrmq_core.client.consumer.pull.range_progress",
    "pyrmq_core.client.consumer.rebalance.strategies",
    "pyrmq_core.client.producer.bulk.send_order",
    "pyrmq_core.servers.protocol",
    "pyrmq_core.servers.nameserver.tables",
    "pyrmq_core.servers.access.plain",
    "pyrmq_core.servers.access.users",
    "pyrmq_core.servers.access.signed_requests",
    "pyrmq_core.servers.broker.statistics",
    "pyrmq_core.servers.broker.store",
    "pyrmq_core.servers.broker.timers",
    "pyrmq_core.tools.search.conditions",
    "pyrmq_core.tools.search.where",
)
# Those that touch the disk, those that wait, and the one that logs which decoder runs.
PURE_EXCEPTIONS = (
    "pyrmq_core.columnar.decoding.compiled",
    "pyrmq_core.servers.broker.timers.service",
    "pyrmq_core.servers.broker.store.disk.disk_files",
    "pyrmq_core.servers.broker.store.disk.descriptors",
)
IMPURE_MODULES = {
    "trio",
    "socket",
    "time",
    "random",
    "logging",
    "asyncio",
    "secrets",
    "select",
    "selectors",
    "threading",
}
CLOCK_CALLS = {"now", "utcnow", "today"}

# Sockets live in `network` alone.
SOCKET_MODULES = {"socket", "socketserver", "selectors", "asyncio", "http", "urllib"}
TRIO_SOCKET_NAMES = {
    "socket",
    "SocketListener",
    "SocketStream",
    "SSLListener",
    "SSLStream",
    "open_ssl_over_tcp_stream",
    "open_tcp_listeners",
    "open_tcp_stream",
    "open_unix_socket",
    "serve_listeners",
    "serve_ssl_over_tcp",
    "serve_tcp",
}
ASYNCIO_SOCKET_NAMES = {
    "StreamReader",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
}

# Third party package -> the rooms that may import it.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "trio": (
        "pyrmq_core.network",
        "pyrmq_core.servers.access",
        "pyrmq_core.client",
        "pyrmq_core.servers.broker",
        "pyrmq_core.servers.nameserver",
        "pyrmq_core.servers.embedded",
        "pyrmq_core.loop_thread",
        "pyrmq_core.blocking",
        "pyrmq_core.aio",
        "pyrmq_core.servers.exporter",
        "pyrmq_core.tools.cli",
        "pyrmq_core.tools.web",
        "pyrmq_core.tools.search",
    ),
    "yaml": ("pyrmq_core.servers.access.yaml_text",),
    "lz4": ("pyrmq_core.protocol.messages.compression",),
    "isal": ("pyrmq_core.columnar.decoding.records",),
    "pyrmq_native": ("pyrmq_core.columnar.decoding.compiled",),
    "zstandard": ("pyrmq_core.protocol.messages.compression",),
    "opentelemetry": ("pyrmq_core.otel.api", "pyrmq_spark.stream.lag_listener"),
    "openlineage": ("pyrmq_spark.stream.lineage_listener",),
    "airflow": ("pyrmq_core.tools.airflow.message_queue",),
    "taskiq": ("pyrmq_core.tools.taskiq",),
    "pytest": ("pyrmq_pytest",),
    "click": ("pyrmq_core.tools.cli",),
    "rich": ("pyrmq_core.tools.cli",),
    "orjson": ("pyrmq_core.tools.cli",),
    "starlette": ("pyrmq_core.tools.web",),
    "hypercorn": ("pyrmq_core.tools.web", "pyrmq_core.servers.exporter"),
    "prometheus_client": ("pyrmq_core.servers.exporter",),
    "jinja2": ("pyrmq_core.tools.web",),
    "markupsafe": ("pyrmq_core.tools.web",),
    "pyarrow": ("pyrmq_core.columnar", "pyrmq_spark"),
    "numpy": ("pyrmq_core.columnar", "pyrmq_spark"),
    "pyspark": ("pyrmq_spark",),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, by its whole name, and where."""

    module: str
    importer: str
    line: int


@functools.cache
def parsed(source: str) -> ast.Module:
    """Returns the tree of a source. All trees of the house have 200 MiB: `cache_clear` drops them."""
    return ast.parse(source)


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Returns the nodes of a source's tree. Nine rules go over the same 600 trees, and to walk one takes as long."""
    return tuple(ast.walk(parsed(source)))


def module_name(path: str) -> str:
    """Returns the name of a path's module: `pyrmq_core/client/__init__.py` is `pyrmq_core.client`."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: str, source: str, modules: set[str]) -> Iterator[Import]:
    """Yields all imports of a module, in functions, under TYPE_CHECKING and as names of modules in strings too.

    `from package import module` counts as an import of the module.
    """
    importer = module_name(path)
    package = importer if path.endswith("__init__.py") else importer.rpartition(".")[0]
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, importer, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in modules or room_of(inner) == inner else base, importer, node.lineno)
        elif isinstance(node, ast.Call) and called_name(node) in ("import_module", "__import__") and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Import(argument.value, importer, node.lineno)
        elif isinstance(node, ast.Constant) and node.value in modules and "." in str(node.value):
            yield Import(str(node.value), importer, node.lineno)  # in a table of modules that are loaded by name


def called_name(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


@functools.cache
def room_of(module: str) -> str | None:
    fitting = [room for room in ROOMS if inside(module, (room,))]
    return max(fitting, key=len, default=None)


def import_faults(sources: Sources) -> list[str]:
    """Returns the imports that a module's room does not allow, ours and other people's."""
    modules = {module_name(path) for path in sources}
    return sorted(
        f"{path}:{arrow.line}: {fault}"
        for path, source in sources.items()
        for arrow in imports(path, source, modules)
        if (fault := _import_fault(arrow))
    )


def _import_fault(arrow: Import) -> str | None:
    top = arrow.module.partition(".")[0]
    room = room_of(arrow.importer)
    if room is None:
        return f"{arrow.importer} stands in no room of the house (tests/support/walls.py)"
    if _pure(arrow.importer) and top in IMPURE_MODULES:
        return f"{room} is plain functions and values, and imports {arrow.module}"
    if arrow.module == "asyncio" and room in {"pyrmq_core.aio", "pyrmq_core.tools.taskiq"}:
        return None  # its loops; its sockets are below
    if top in SOCKET_MODULES and arrow.module != "urllib.parse" and room != "pyrmq_core.network":
        return f"{arrow.module} is imported outside network"
    if top in sys.stdlib_module_names:
        return None
    target = room_of(arrow.module)
    if target is None:
        allowed = THIRD_PARTY.get(top, ())
        return None if inside(arrow.importer, allowed) else f"{arrow.importer} imports {top}"
    if room == "pyrmq_spark" and top == "pyrmq_core":
        return (
            None if arrow.module in PUBLIC_CORE else f"pyrmq_spark reaches below what pyrmq_core names: {arrow.module}"
        )
    if target == room or target in ROOMS[room] or (room == "pyrmq_core.tools.cli" and top == "pyrmq_core"):
        return None
    return f"{room} imports {target}"


def _pure(module: str) -> bool:
    return inside(module, PURE_ROOMS) and not inside(module, PURE_EXCEPTIONS)


def clock_and_socket_faults(sources: Sources) -> list[str]:
    """Returns looks at the clock in pure rooms, and trio's socket names outside network."""
    faults = []
    for path, source in sources.items():
        module = module_name(path)
        for node in nodes(source):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            owner, name = node.value.id, node.attr
            if _pure(module) and owner in ("datetime", "date") and name in CLOCK_CALLS:
                faults.append(f"{path}:{node.lineno}: {owner}.{name} in a room without a clock")
            if owner == "trio" and name in TRIO_SOCKET_NAMES and room_of(module) != "pyrmq_core.network":
                faults.append(f"{path}:{node.lineno}: trio.{name} outside network")
            if owner == "asyncio" and name in ASYNCIO_SOCKET_NAMES:
                faults.append(f"{path}:{node.lineno}: asyncio.{name} outside network")
    return sorted(faults)


def circle_faults(sources: Sources) -> list[str]:
    """Returns one circle of imports for each folder that has any, among its modules and subfolders."""
    modules = {module_name(path) for path in sources}
    arrows = {
        (arrow.importer, arrow.module)
        for path, source in sources.items()
        for arrow in imports(path, source, modules)
        if arrow.module in modules and arrow.module != arrow.importer
    }
    folders = {"", *(".".join(parts[:end]) for parts in map(_parts, modules) for end in range(1, len(parts)))}
    found_circles = (_circle(folder, arrows) for folder in sorted(folders))
    return sorted({f"a circle of imports: {' > '.join(circle)}" for circle in found_circles if circle})


def _circle(folder: str, arrows: set[tuple[str, str]]) -> list[str]:
    graph: dict[str, set[str]] = {}
    for importer, imported in arrows:
        here, there = _child(folder, importer), _child(folder, imported)
        if here and there and here != there:
            graph.setdefault(here, set()).add(there)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]
    return []


def _parts(module: str) -> list[str]:
    return module.split(".")


def _child(folder: str, module: str) -> str:
    """Returns the folder's module or subfolder in which `module` lies; the folder's own `__init__` counts as one."""
    if not folder or module == folder:
        return module
    if not module.startswith(folder + "."):
        return ""
    return ".".join(_parts(module)[: len(_parts(folder)) + 1])


def folder_faults(sources: Sources) -> list[str]:
    """Returns the folders with too many modules; `__init__` does not count."""
    counts = Counter(str(Path(path).parent) for path in sources if not path.endswith("__init__.py"))
    return sorted(
        f"{folder}: {count} modules, {MAX_FOLDER_MODULES} at most"
        for folder, count in counts.items()
        if count > MAX_FOLDER_MODULES
    )


def effect_faults(sources: Sources) -> list[str]:
    """Returns statements at a module's top level that only have an effect: a bare call at import."""
    return sorted(
        f"{path}:{node.lineno}: a call with an effect at import"
        for path, source in sources.items()
        if not path.endswith("__main__.py")
        for node in parsed(source).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_hook(node.value)
    )


def _is_hook(call: ast.Call) -> bool:
    """Checks for the registration of a function for the process's end or a fork, which has to happen before either."""
    return ast.unparse(call.func) in ("atexit.register", "os.register_at_fork")


def size_faults(sources: Sources) -> list[str]:
    """Returns the modules and functions that cannot be read in one sitting."""
    faults = []
    for path, source in sources.items():
        lines = source.count("\n")
        if lines > MAX_MODULE_LINES:
            faults.append(f"{path}: {lines} lines, {MAX_MODULE_LINES} at most")
        for node in nodes(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    faults.append(f"{path}:{node.lineno}: {node.name} has {length} lines, {MAX_FUNCTION_LINES} at most")
    return sorted(faults)


def sentence_faults(sources: Sources) -> list[str]:
    """Returns the files that do not open with a sentence."""
    faults = []
    for path, source in sources.items():
        opening = (ast.get_docstring(parsed(source)) or "").partition("\n\n")[0]
        if not re.match(r"\S.*[.?!:)]", opening, re.DOTALL) or len(opening.split()) < 3:
            faults.append(f"{path}: does not open with a sentence")
    return sorted(faults)


def table_faults(sources: Sources) -> list[str]:
    """Returns the docstrings in which lines of a table stand beside prose.

    A paragraph with a gap of two blanks is a table. Each of its lines has a gap or a name alone, or is deeper since it
    goes on with the line above.
    """
    faults: list[str] = []
    for path, source in sources.items():
        for node in nodes(source):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            paragraphs = [text.splitlines() for text in re.split(r"\n\s*\n", ast.get_docstring(node) or "")]
            broken = [lines[0] for lines in paragraphs if _is_broken_table(lines)]
            faults.extend(f"{path}: {line}: a table that became prose" for line in broken)
    return sorted(faults)


def _is_broken_table(lines: list[str]) -> bool:
    rows = [line for line in lines if re.search(r"\S {2,}\S", line)]
    if not rows:
        return False
    margin = min(len(line) - len(line.lstrip()) for line in rows)
    beside = [line for line in lines if line not in rows and len(line) - len(line.lstrip()) <= margin]
    return any(len(line.split()) > 4 for line in beside)


def semicolon_faults(sources: Sources) -> list[str]:
    """Returns the docstrings in which a semicolon joins two ideas, but for text in back-ticks."""
    faults: list[str] = []
    for path, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = re.sub(r"`[^`]*`", "", ast.get_docstring(node) or "")
                faults.extend(f"{path}: {line.strip()}: a semicolon" for line in text.splitlines() if ";" in line)
    return sorted(faults)
