"""Reads and writes the YAML of `plain_acl.yml` by PyYAML, which is imported at the first use.

Like SnakeYAML, PyYAML reads YAML 1.1: `yes` is true, 0123 is octal.
"""

from __future__ import annotations

from typing import Any

from pyrmq_core.errors import InvalidArgument, MissingLibrary


def check_library() -> None:
    _yaml()


def load_document(text: bytes) -> dict[str, object]:
    """Parses a YAML document. An empty one gives an empty dict. Raises `InvalidArgument` unless it is a mapping."""
    yaml = _yaml()
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"this is no YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        raise InvalidArgument("the file is no table; it has globalWhiteRemoteAddresses and accounts")
    return document


def dump_document(document: dict[str, object]) -> bytes:
    """Returns a document as YAML, with its members in order. Comments of the parsed text are lost, as in Java."""
    dumped: str = _yaml().safe_dump(document, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return dumped.encode()


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingLibrary(
            'aclEnable=true reads YAML by a library that is not installed: pip install "pyrmq-spark[acl]"'
        ) from error
    return yaml
