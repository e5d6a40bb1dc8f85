"""The page of errors: every condition that an error can have is there, with its class, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pyrmq_core import ResponseCode, RocketMQError
from pyrmq_spark import spark_errors

PAGE = (Path(__file__).parent.parent / "docs" / "errors.md").read_text()
SPARK = "of Spark"


def below(kind: type[RocketMQError]) -> set[type[RocketMQError]]:
    """Returns the class and all that inherit from it in the packages."""
    kinds = {kind}.union(*(below(inner) for inner in kind.__subclasses__()))
    return {error for error in kinds if error.__module__.startswith(("pyrmq_core.", "pyrmq_spark."))}


def own_conditions() -> dict[str, str]:
    """Returns the name of the class that gives itself each condition, or `SPARK` for those of Spark's side."""
    return {
        kind.condition: SPARK if kind.__module__ == spark_errors.__name__ else kind.__name__
        for kind in below(RocketMQError)
        if "condition" in vars(kind)
    }


def test_every_condition_has_a_row() -> None:
    rows = re.findall(r"^\| `(RMQ_\w+)` \| (?:`(\w+)`|(of Spark)) \|", PAGE, re.MULTILINE)
    listed = {condition: name or where for condition, name, where in rows}
    assert listed == own_conditions()
    assert list(listed) == sorted(listed)


def test_every_code_has_its_name() -> None:
    table = PAGE.partition("## Codes of servers")[2]
    for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", table, re.MULTILINE):
        assert ResponseCode(int(number)).name == name
