"""Brokers, topics and NameServers of each RocketMQ, administered: the tests of our own cluster."""

from __future__ import annotations

import pytest

from tests.support.apache import ApacheCluster
from tests.support.broker_admin_jobs import BrokerAdminJobs


class TestNewest(BrokerAdminJobs):
    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


@pytest.mark.soak
class TestOlder(BrokerAdminJobs):
    has_topic_config = False

    @pytest.fixture
    def nameserver(self, apache_4: ApacheCluster) -> str:
        return apache_4.nameserver.address
