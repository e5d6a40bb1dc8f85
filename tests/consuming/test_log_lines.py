"""The log lines of a user's functions that raise: a warning with its traceback, and few of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from pyrmq_core import LocalTransactionState, MessageExt
from pyrmq_core.client import hook_calls
from pyrmq_core.client.consumer.consume.handler_calls import Handler, HandlerCalls
from pyrmq_core.client.hook_calls import quietly
from pyrmq_core.client.producer import transactions
from pyrmq_core.client.producer.transactions import decided_here
from pyrmq_core.network.rare_lines import RareLines
from tests.consuming.test_process_queue import message as a_message

WARNING = logging.WARNING
# Clients that other tests left in the thread of the loop may write lines, too.
LOGGER = HandlerCalls.__module__


def parse(messages: Sequence[MessageExt]) -> int:
    return int(messages[0].body)


async def parse_on_loop(messages: Sequence[MessageExt]) -> int:
    return int(messages[0].body)


@pytest.mark.parametrize("handler", [parse, parse_on_loop])
async def test_a_handler_that_raises_is_a_warning_with_its_traceback_at_most_once_a_minute(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    calls = HandlerCalls(handler, threads=1)
    for _ in range(100):
        outcome = await calls.call([a_message(7)])
        assert isinstance(outcome.reason, ValueError)
    (record,) = [record for record in caplog.records if record.levelno >= WARNING and record.name == LOGGER]
    assert record.getMessage().startswith(f"handler {handler.__name__} raised ValueError: ")
    assert "are delivered again" in record.getMessage()
    assert f"in {handler.__name__}\n" in caplog.text


async def test_what_leaves_a_deliverys_block_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It goes on to the user's code."""
    caplog.set_level(logging.INFO)
    await HandlerCalls(parse_on_loop, threads=1, warns=False).call([a_message(7)])
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("INFO", None)


def test_a_hook_that_raises_is_a_warning_with_its_traceback_at_most_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_calls, "_FAILED", RareLines())

    def hook() -> None:
        raise LookupError("no such span")

    for _ in range(100):
        assert quietly(hook) is None
    (record,) = [record for record in caplog.records if record.levelno >= WARNING]
    assert record.getMessage().endswith("hook failed and is passed over: LookupError: no such span")
    assert record.exc_info


def test_a_local_transaction_that_raises_is_a_warning_with_its_traceback_at_most_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "_FAILED", RareLines())

    def transfer() -> LocalTransactionState:
        raise LookupError("no such account")

    for _ in range(100):
        state, _ = decided_here(transfer)
        assert state is LocalTransactionState.UNKNOW
    (record,) = [record for record in caplog.records if record.levelno >= WARNING]
    assert record.getMessage().endswith("the broker will ask: LookupError: no such account")
    assert record.exc_info
