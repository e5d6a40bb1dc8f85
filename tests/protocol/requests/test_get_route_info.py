"""Requests for a route; the route itself is tested beside `route.py`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Serialization
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from tests.protocol.conversations import SERIALIZATIONS, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import SOME_TEXT
from tests.protocol.test_frame import JAVA_ROUTE
from tests.protocol.test_route import ROUTES

REQUESTS = st.builds(GetRouteInfo, SOME_TEXT, st.none() | st.booleans())


def test_javas_request() -> None:
    assert GetRouteInfo.from_command(JAVA_ROUTE) == GetRouteInfo("TopicTest")
    assert GetRouteInfo("TopicTest").to_command().ext == JAVA_ROUTE.ext


@given(REQUESTS, SERIALIZATIONS)
def test_requests_survive(request: GetRouteInfo, serialization: Serialization) -> None:
    assert_survives(request, serialization)


@given(st.builds(RouteInfo, ROUTES), SERIALIZATIONS)
def test_answers_survive(answer: RouteInfo, serialization: Serialization) -> None:
    assert_survives(answer, serialization)


@given(st.data(), REQUESTS, st.builds(RouteInfo, ROUTES))
def test_garbage_is_named(data: st.DataObject, request: GetRouteInfo, answer: RouteInfo) -> None:
    assert_garbage_is_named(GetRouteInfo, request, data)
    assert_garbage_is_named(RouteInfo, answer, data)
