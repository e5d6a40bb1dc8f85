"""A line of the log is one line, for any names in it."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.network.log_lines import MAX_LINE_CHARS, line_logger, one_line


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_that_can_be_written(text: str) -> None:
    line = one_line(text)
    line.encode()
    assert line.isprintable() or all(character.isprintable() or ord(character) > 0x9F for character in line)
    assert len(line.splitlines()) <= 1


def test_what_is_harmless_stays() -> None:
    assert one_line("broker-a, 10.0.0.1:10911, клåster 集群") == "broker-a, 10.0.0.1:10911, клåster 集群"
    assert one_line("a\nb\r\u2028\ud800\x1b[2J") == "a\\nb\\r\\u2028\\ud800\\x1b[2J"


def test_a_long_value_is_cut_and_its_length_logged() -> None:
    assert one_line("x" * 5_000_000) == "x" * MAX_LINE_CHARS + "... (5000000 characters)"


def test_a_logger_writes_one_line_with_any_argument(caplog: pytest.LogCaptureFixture) -> None:
    log = line_logger("pyrmq.test.lines")
    assert line_logger("pyrmq.test.lines") is log
    with caplog.at_level(logging.INFO):
        log.info("new broker %s", "b\n2026-01-01 INFO all is well")
    assert caplog.messages == ["new broker b\\n2026-01-01 INFO all is well"]


def test_a_traceback_can_be_written_and_looks_like_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = line_logger("pyrmq.test.lines")
    with caplog.at_level(logging.DEBUG):
        try:
            raise ValueError("a\n2026-01-01 INFO all is well \ud800")
        except ValueError as error:
            log.debug("where it failed", exc_info=error)
    _, *lines = caplog.text.splitlines()
    caplog.text.encode()
    assert len(lines) > 3
    assert all(line.startswith("  | ") for line in lines)
