"""The wall around the two paths: sending and pulling requests are named in one module each."""

import ast

from tests.support.walls import Sources, called_name, inside, module_name, nodes

# One send path, one read path: these names (and the conversations' modules) stand in one module of these rooms.
ROAD_ROOMS = (
    "pyrmq_core.tools.web",
    "pyrmq_core.client",
    "pyrmq_core.columnar",
    "pyrmq_core.loop_thread",
    "pyrmq_core.blocking",
    "pyrmq_core.aio",
    "pyrmq_core.tools.cli",
    "pyrmq_spark",
)
SEND_NAMES = {"SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SendMessage", "send_message"}
PULL_NAMES = {"PULL_MESSAGE", "LITE_PULL_MESSAGE", "PullMessage", "pull_message"}
# Their answers may be read elsewhere.
ANSWER_NAMES = {"MessageStored"}
ROADS = (
    ("pyrmq_core.client.producer.send.sender", SEND_NAMES, {10, 310, 320}),
    ("pyrmq_core.client.consumer.pull.puller", PULL_NAMES, {11, 361}),
)


def road_faults(sources: Sources) -> list[str]:
    """Returns the places that name sending or pulling requests outside their one path."""
    faults = []
    for path, source in sources.items():
        module = module_name(path)
        if not inside(module, ROAD_ROOMS):
            continue
        for home, names, codes in ROADS:
            if module == home:
                continue
            faults += [
                f"{path}:{getattr(node, 'lineno', 0)}: {uses.pop()} belongs to {home} alone"
                for node in nodes(source)
                if (uses := _named(node) & names or _issued(node) & codes)
            ]
    return sorted(faults)


def _named(node: ast.AST) -> set[str]:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return {name}
        case ast.ImportFrom(module=module, names=aliases):
            names = {alias.name for alias in aliases}
            return set() if names <= ANSWER_NAMES else names | {(module or "").rpartition(".")[2]}
        case ast.Import(names=aliases):
            return {alias.name.rpartition(".")[2] for alias in aliases}
        case _:
            return set()


def _issued(node: ast.AST) -> set[int]:
    """Returns codes written as bare numbers: `Command(310, ...)`, `RequestCode(310)`, `code=310`."""
    if not isinstance(node, ast.Call) or called_name(node) not in ("Command", "RequestCode"):
        return set()
    given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "code")]
    return {value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, int)}
