"""`pyrmq acl` on each broker with access control, ours and RocketMQ's."""

from __future__ import annotations

import pytest

from tests.support.acl_jobs import accounts, users_and_policies
from tests.support.consumer_jobs import fresh
from tests.support.guarded import KEY, SECRET, Guarded
from tests.support.terminal import Terminal

pytestmark = pytest.mark.timeout(300)


def test_from_the_first_to_the_last(guarded: Guarded) -> None:
    terminal = Terminal(guarded.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
    if guarded.users:
        users_and_policies(terminal, fresh("user"))
    else:
        accounts(terminal, fresh("account"))
