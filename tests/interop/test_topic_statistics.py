"""Offsets of many queues in one answer of real servers: each means what single requests of the same server mean."""

from __future__ import annotations

import pytest

from tests.support.apache import ApacheCluster
from tests.support.statistics_jobs import compare_with_single_requests


async def test_statistics_are_the_offsets_of_single_requests(
    apache: ApacheCluster, request: pytest.FixtureRequest
) -> None:
    is_old = request.node.callspec.params["apache"].startswith("4.")
    await compare_with_single_requests(apache.nameserver.address, is_old=is_old)
