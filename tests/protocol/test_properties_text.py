"""Configuration files: java.util.Properties to the letter."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from tests.support import golden


def rows() -> list[tuple[str, dict[str, str] | None]]:
    """Returns texts and Java's values for them; None where it raised."""
    texts: list[tuple[str, dict[str, str] | None]] = []
    for line in golden.text("java_properties.txt").splitlines():
        raw, _, outcome = line.partition(" ")
        pairs = (pair.split("=") for pair in outcome.split(";") if pair and outcome != "ERR")
        expected = {_utf_16(key): _utf_16(value) for key, value in pairs}
        texts.append((bytes.fromhex(raw).decode(), None if outcome == "ERR" else expected))
    return texts


def _utf_16(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-16-be")


def test_javas_reading() -> None:
    assert len(rows()) == 440
    for text, expected in rows():
        if expected is None:
            with pytest.raises(InvalidArgument, match="four hex digits"):
                parse_java_properties(text)
        else:
            assert parse_java_properties(text) == expected, text


def test_a_broker_conf() -> None:
    text = """
# the cluster
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0
   ! another comment
listenPort: 10911
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
storePathRootDir=C:\\\\store\\u0020x
long=one,\\
    two
empty=
alone
"""
    assert parse_java_properties(text) == {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "listenPort": "10911",
        "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
        "storePathRootDir": "C:\\store x",
        "long": "one,two",
        "empty": "",
        "alone": "",
    }


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(end: str) -> None:
    assert parse_java_properties(end.join(["a=1", "", "b=2\\", " 3", "#x", "c=4"])) == {"a": "1", "b": "23", "c": "4"}


def test_two_escapes_spell_one_character() -> None:
    assert parse_java_properties("a=\\ud83d\\ude00") == {"a": "\U0001f600"}
    assert parse_java_properties("a=\\ud83d") == {"a": "\ufffd"}


def test_a_lone_backslash_at_the_end_is_nothing() -> None:
    assert parse_java_properties("a=1\n\\") == {"a": "1"}
    assert parse_java_properties("\\") == {}


def test_a_broken_escape_is_reported() -> None:
    with pytest.raises(InvalidArgument, match=r"'store=C:\\\\users' has a \\u that four hex digits do not follow"):
        parse_java_properties("ok=1\nstore=C:\\users")


@given(st.text("ab=: \t\\\n\r#!u0041é", max_size=60) | st.text())
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    with contextlib.suppress(InvalidArgument):
        parse_java_properties(text)


@given(
    st.dictionaries(
        st.text("abcXYZ019._-", min_size=1),
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"])).map(str.strip),
    )
)
def test_plain_settings_survive(settings: dict[str, str]) -> None:
    text = "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())
    assert parse_java_properties(text) == settings
