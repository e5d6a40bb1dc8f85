"""Members of ours at Apache RocketMQ, whose group is reset."""

from __future__ import annotations

import pytest

from tests.support.apache import ApacheCluster
from tests.support.reset_jobs import ResetJobs


class TestNewest(ResetJobs):
    @pytest.fixture
    async def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


@pytest.mark.soak
class TestOlder(ResetJobs):
    @pytest.fixture
    async def nameserver(self, apache_4: ApacheCluster) -> str:
        return apache_4.nameserver.address
