"""Namespaces in front of names, against the output of Java's NamespaceUtil (tests/golden/vectors_java2.txt)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.messages.namespaces import instance_namespace, with_namespace, without_namespace
from tests.support import golden


def rows(start: str) -> list[list[str]]:
    lines = [line for line in golden.text("vectors_java2.txt").splitlines() if line.startswith(start)]
    return [[part.strip() for part in line.removeprefix(start).split(" | ")] for line in lines]


@pytest.mark.parametrize(("name", "wrapped", "unwrapped", "plain"), [row[:4] for row in rows("ns wrap ")])
def test_as_java_does(name: str, wrapped: str, unwrapped: str, plain: str) -> None:
    assert with_namespace(name, "NS") == wrapped
    assert without_namespace(wrapped, "NS") == unwrapped
    assert without_namespace(name, "NS") == plain


@pytest.mark.parametrize(("address", "namespace"), [(row[0], row[2]) for row in rows("nsaddr ")])
def test_an_endpoint_names_its_instance(address: str, namespace: str) -> None:
    assert instance_namespace(address) == (None if namespace == "null" else namespace)


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True))
def test_there_and_back_and_never_twice(name: str, namespace: str) -> None:
    wrapped = with_namespace(name, namespace)
    assert with_namespace(wrapped, namespace) == wrapped
    assert without_namespace(wrapped, namespace) == name
    assert with_namespace(name, None) == without_namespace(name, None) == name
