"""Requests with every field wrong, signed by an account and by a user: each gets a verdict, each change an answer."""

from __future__ import annotations

import pytest

from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.servers.access.plain.rules import rules_of
from pyrmq_core.servers.access.user_file import UserFile
from pyrmq_core.servers.access.user_requests import ABOUT, answer
from pyrmq_core.servers.access.users.rules import CheckScope, UserRules
from pyrmq_core.servers.access.users.values import SUPER, User, policies_of
from tests.hostile.attacks import attacks_of
from tests.servers.access.requests import signed

NAME, SECRET, IP = "account", "s3cret-key", "10.0.0.1"
GRANTED = policies_of([{"entries": [{"resource": "Topic:kept", "actions": ["All"], "decision": "Allow"}]}])


def commands(code: int) -> list[Command]:
    """Returns the attacks on a code that are whole frames."""
    requests = []
    for attack in attacks_of(code):
        decoder = FrameDecoder()
        try:
            decoder.feed(attack.data)
            command = decoder.next_command()
        except RocketMQError:
            continue
        if command is not None:
            requests.append(command)
    return requests


@pytest.mark.parametrize("code", [10, 11, 18, 34, 41, 200, 208, 225])
def test_every_wrong_request_gets_a_verdict(code: int) -> None:
    """One code for each way in which names are found in a request."""
    plain = rules_of([("acl.yml", {"accounts": [{"accessKey": NAME, "secretKey": SECRET}]})])
    users, scope = UserRules({NAME: User(NAME, SECRET)}, {f"User:{NAME}": GRANTED}), CheckScope("c", authorizes=True)
    for command in commands(code):
        request = signed(command, NAME, SECRET)
        assert isinstance(plain.denial(request, IP), str)
        assert isinstance(users.denial(request, IP, scope), str)


async def test_every_wrong_change_of_users_is_answered() -> None:
    for code in ABOUT:
        for request in commands(code):
            users = UserFile(None)
            users.rules = UserRules({"root": User("root", "p", SUPER), "G0": User("G0", "p")}, {"User:G0": GRANTED})
            assert (await answer(users, request)).code in (0, 1, 16, 29)
            assert "root" in users.rules.users
