"""Every request that our servers answer is judged, or stands here as one that any account or user may send."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.guard import READ_BODIES
from pyrmq_core.servers.access.plain import needs as of_accounts
from pyrmq_core.servers.access.user_requests import ABOUT
from pyrmq_core.servers.access.users import needs as of_users
from pyrmq_core.servers.nameserver.handlers import HANDLERS as NAMESERVER
from tests.support.broker_codes import served_requests

# As in 5.4.0: lists and figures without what they hold, settings without passwords, and replies.
OPEN_TO_USERS = {21, 26, 28, 43, 45, 46, 60, 61, 106, 201, 206, 224, 304, 305, 311, 312, 313, 319, 324, 325, 402, 907}
# Answered with a refusal where there are users; checked by the rules of accounts where these are.
OF_ACCOUNTS = {50, 51, 52, 53, 54}
# As in 4.9.7: reading by offset, figures, and what is passed on to consumers.
OPEN_TO_ACCOUNTS = {
    14,
    21,
    26,
    28,
    29,
    30,
    31,
    32,
    33,
    43,
    45,
    46,
    52,
    60,
    61,
    201,
    202,
    203,
    204,
    208,
    223,
    300,
    303,
    305,
    307,
}
BROKER = served_requests()
OPEN_TO_ACCOUNTS |= {*range(200074, 200079), 308, 309, 315, 317, 321, 324, 325, 328, 343, 345, 351, 352, 402, 905, 907}


def test_users_need_an_action_for_every_request_that_is_not_open_to_all() -> None:
    """A new request belongs into `access/users/needs.py`, above all if it changes something."""
    assert {*BROKER, *NAMESERVER} - set(of_users._NEEDS) <= OPEN_TO_USERS | OF_ACCOUNTS


def test_accounts_need_a_permission_for_every_request_that_is_not_open_to_all() -> None:
    """A new request belongs into `access/plain/needs.py`, above all if it changes something."""
    judged = set(of_accounts._NEEDS) | of_accounts.ADMIN_CODES
    assert set(BROKER) - judged <= OPEN_TO_ACCOUNTS | set(ABOUT)


def _reads_a_body(find: Callable[[], Iterable[object]]) -> bool:
    try:
        find()
    except BodyError:
        return True
    return False


def test_each_body_that_is_decoded_for_permissions_is_limited_in_size() -> None:
    """A request whose body is decoded here belongs into `guard.READ_BODIES`, but for long lists of lite topics."""
    wrong = [Command(code, body=b"{") for code in {*of_accounts._NEEDS, *of_users._NEEDS}]
    for_accounts = {request.code for request in wrong if _reads_a_body(partial(of_accounts.needs_of, request))}
    for_users = {request.code for request in wrong if _reads_a_body(partial(of_users.needs_of, request, ""))}
    assert for_accounts | for_users == READ_BODIES | {RequestCode.LITE_SUBSCRIPTION_CTL}
