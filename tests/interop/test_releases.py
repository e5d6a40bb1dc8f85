"""Every release of RocketMQ that users still run, through the steps of a user: the table of `docs/releases.md`."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyrmq_core.errors import RequestTimeout, RocketMQError
from tests.support.apache import NEWEST, boot_cluster
from tests.support.java_programs import OPENED
from tests.support.maven import ApacheUnavailable
from tests.support.release_steps import STEPS, Walk

pytestmark = pytest.mark.timeout(900)

PAGE = Path(__file__).parents[2] / "docs" / "releases.md"
OTHER_RELEASES = ("4.3.2", "4.5.2", "4.8.0", "4.9.0", "5.0.0", "5.1.4", "5.3.3", "5.4.0")


def words_of(release: str) -> dict[str, str]:
    """Returns the page's word for each step on a release: yes, but for what its table has."""
    first_table = next(part for part in PAGE.read_text().split("\n\n") if part.startswith("| step |"))
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first_table.splitlines()]
    column = head.index(release)
    exceptions = {row[0]: row[column] for row in rows}
    steps = list(map(word, STEPS))
    assert exceptions.keys() <= set(steps)
    return dict.fromkeys(steps, "yes") | exceptions


def word(step: str) -> str:
    return step.replace("_", " ")


def outcome(error: Exception) -> str:
    """Returns the page's word for a failure that it knows; the error's text for another."""
    if isinstance(error, RequestTimeout):
        return "no"
    text = f"{type(error).__name__}: {error}"
    return "refused" if re.search(r"REQUEST_CODE_NOT_SUPPORTED|need brokers of 5.0", text) else text


@pytest.mark.parametrize(
    "release", [NEWEST, "4.9.7", *(pytest.param(release, marks=pytest.mark.soak) for release in OTHER_RELEASES)]
)
def test_a_release_does_what_the_page_says(release: str, tmp_path: Path) -> None:
    expected = words_of(release)
    outcomes = {}
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster(release, ("broker-a",), java_options=OPENED))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {release}: {reason}")
        walk = Walk(cluster.nameserver.address, tmp_path)
        for step in STEPS:
            try:
                getattr(walk, step)()
                outcomes[word(step)] = "yes"
            except (RocketMQError, AssertionError) as error:
                outcomes[word(step)] = outcome(error)
    assert outcomes == expected
