"""A lower wall for modules: a small module with one importer is a part of that importer and belongs in its file."""

from pathlib import PurePosixPath

from tests.support.walls import Sources, imports, module_name

MIN_LINES = 60
# One file a conversation, however short: a test, the client and the broker find it by its name.
CONVERSATIONS = ("pyrmq_core/protocol/requests/", "pyrmq_core/servers/protocol/")

# Small modules that stay apart from their one importer, each with the reason.
APART = {
    "pyrmq_core/network/http_get.py": "sockets live in `network`, and its importer is the client's",
    "pyrmq_core/servers/access/yaml_text.py": "the one module that may import yaml",
}

# Small modules with one importer that are still to be joined to it. Nothing is added here.
TO_BE_JOINED: set[str] = set()


def modules_to_join(sources: Sources) -> dict[str, str]:
    """Returns each path that belongs in another module, and that module.

    A face, which its folder's `__init__` alone imports, stands by itself, and so does an `__init__`.
    """
    modules = {module_name(path): path for path in sources}
    importers: dict[str, set[str]] = {path: set() for path in sources}
    for path, source in sources.items():
        for entry in imports(path, source, set(modules)):
            if entry.module in modules and entry.module != entry.importer:
                importers[modules[entry.module]].add(path)
    return {
        path: next(iter(importers[path]))
        for path, source in sources.items()
        if source.count("\n") < MIN_LINES
        and len(importers[path]) == 1
        and PurePosixPath(path).name != "__init__.py"
        and not path.startswith(CONVERSATIONS)
        and not any(PurePosixPath(importer).name == "__init__.py" for importer in importers[path])
    }


def small_module_faults(sources: Sources, spared: set[str]) -> list[str]:
    """Returns the small modules with one importer that are not spared, and the spared that are none any more."""
    joining = modules_to_join(sources)
    return sorted(
        [
            f"{path}: under {MIN_LINES} lines, and only {importer} imports it: join them"
            for path, importer in joining.items()
            if path not in spared
        ]
        + [
            f"{path}: no small module with one importer any more, take it off the list"
            for path in spared - set(joining)
        ]
    )
