"""New random inputs for the classes of both releases: all members of a group have to compute alike."""

from __future__ import annotations

import sys
from random import Random, SystemRandom

import pytest

from pyrmq_core import InvalidArgument, TagFilter
from tests.support.apache import VERSIONS
from tests.support.group_vectors import (
    allocation_cases,
    comparable,
    java_allocations,
    java_subscriptions,
    our_allocation,
    subscription_inputs,
)
from tests.support.maven import ApacheUnavailable, jars


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    try:
        jars(request.param)
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")
    return str(request.param)


@pytest.fixture
def random() -> Random:
    seed = SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")  # shown if the test fails
    return Random(seed)


def test_allocations(version: str, random: Random) -> None:
    cases = allocation_cases(random, 400)
    for case, java in zip(cases, java_allocations(version, cases), strict=True):
        assert our_allocation(case) == comparable(java), case


def test_tag_expressions(version: str, random: Random) -> None:
    inputs = [pair for pair in subscription_inputs(random, 400) if pair[1] == "TAG"]
    for (expression, _), java in zip(inputs, java_subscriptions(version, inputs), strict=True):
        named = set() if isinstance(java, str) else set(java["tagsSet"])
        everything = expression is None or expression.strip(" \t") in ("", "*")
        if everything or named:
            assert TagFilter.parse(expression).tags == (set() if everything else named), repr(expression)
        else:
            with pytest.raises(InvalidArgument):
                TagFilter.parse(expression)
