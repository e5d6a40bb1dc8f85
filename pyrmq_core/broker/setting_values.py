"""The values of settings as texts: those of a file, of the command line, and of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.properties_text import parse_java_properties

# RocketMQ reads these from JVM properties, too, which win. Here they are in the same file.
JVM_PREFIX: Final = "rocketmq.broker."
RATIOS: Final = ("diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
NUMBER: Final = re.compile(r"[+-]?[0-9]+")
# The most characters of a wrong value that are shown.
SHOWN: Final = 40


def with_ratios(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with RocketMQ's JVM properties among them, which are fractions, in place of the percentages.

    Raises `InvalidArgument` for one that is no fraction.
    """
    found = dict(properties)
    for name in RATIOS:
        if (text := found.pop(JVM_PREFIX + name, "").strip()) != "":
            try:
                found[name] = str(round(100 * float(text)))
            except (ValueError, OverflowError) as error:
                raise InvalidArgument(f"{JVM_PREFIX}{name} is {text!r}; it is a fraction such as 0.90") from error
    return found


def read_config_file(path: str) -> dict[str, str]:
    """Returns the settings in a file of Java properties; raises `InvalidArgument` if it cannot be read."""
    try:
        return parse_java_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration file {path} cannot be read: {error}") from error


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(name: str, text: str, kind: type) -> object:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidArgument(f"{name} is {text[:SHOWN]!r}; true or false are possible")
        return text.lower() == "true"
    if kind is int:
        if not NUMBER.fullmatch(text) or len(text) > SHOWN:
            raise InvalidArgument(f"{name} is {text[:SHOWN]!r}; it is a whole number of at most 19 digits")
        return int(text)
    return text
