"""A consumer's hooks: their contexts, and that one which raises, hangs or is async harms nothing."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import FrozenInstanceError

import pytest

from pyrmq_core import ConsumeContext, ConsumeMessageHook, ConsumeReturnType, InvalidArgument, MessageQueue
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks

QUEUE = MessageQueue("orders", "broker-a", 0)


class Recorder:
    """A hook that keeps its contexts, and a mark between them."""

    def __init__(self) -> None:
        self.before: list[ConsumeContext] = []
        self.after: list[ConsumeContext] = []

    def consume_message_before(self, context: ConsumeContext) -> None:
        self.before.append(context)
        context.properties["mark"] = "kept"

    def consume_message_after(self, context: ConsumeContext) -> None:
        self.after.append(context)


class Raising:
    def consume_message_before(self, context: ConsumeContext) -> None:
        raise RuntimeError("before")

    def consume_message_after(self, context: ConsumeContext) -> None:
        raise RuntimeError("after")


class Slow(Recorder):
    def consume_message_before(self, context: ConsumeContext) -> None:
        time.sleep(0.15)


class AsyncHook:
    async def consume_message_before(self, context: ConsumeContext) -> None: ...

    async def consume_message_after(self, context: ConsumeContext) -> None: ...


class OnlyBefore:
    def consume_message_before(self, context: ConsumeContext) -> None: ...


def a_context() -> ConsumeContext:
    return ConsumeContext("audit", "tenant", (), QUEUE)


def test_without_hooks_there_is_nothing_to_pay() -> None:
    assert not ConsumerHooks(())
    assert ConsumerHooks([Recorder()])


def test_a_hook_is_called_before_and_after() -> None:
    hook = Recorder()
    hooks, context = ConsumerHooks([hook]), a_context()
    hooks.before(context)
    assert (context.status, context.success, context.seconds, context.error) == (None, False, 0.0, None)
    hooks.after(context.ended(ConsumeReturnType.SUCCESS, 0.25))
    (before,), (after,) = hook.before, hook.after
    assert (after.consumer_group, after.namespace, after.queue) == ("audit", "tenant", QUEUE)
    assert (after.status, after.success, after.seconds) == (ConsumeReturnType.SUCCESS, True, 0.25)
    assert before.status is None  # the first context did not change
    assert after.properties is before.properties
    assert after.properties == {"mark": "kept", "ConsumeContextType": "SUCCESS"}


def test_each_call_has_properties_of_its_own() -> None:
    first, second = a_context(), a_context()
    first.properties["mark"] = "first"
    assert second.properties == {}


@pytest.mark.parametrize(
    ("status", "success"),
    [
        (ConsumeReturnType.SUCCESS, True),
        (ConsumeReturnType.FAILED, False),
        (ConsumeReturnType.EXCEPTION, False),
        (ConsumeReturnType.TIME_OUT, False),
    ],
)
def test_success_follows_the_status(status: ConsumeReturnType, success: bool) -> None:
    error = ValueError("no")
    ended = a_context().ended(status, 1.0, error=error)
    assert (ended.status, ended.success, ended.error) == (status, success, error)
    assert ended.properties["ConsumeContextType"] == status.name


def test_the_types_have_the_ordinals_of_java() -> None:
    assert [(kind.name, kind.value) for kind in ConsumeReturnType] == [
        ("SUCCESS", 0),
        ("TIME_OUT", 1),
        ("EXCEPTION", 2),
        ("RETURNNULL", 3),
        ("FAILED", 4),
    ]


def test_hooks_are_called_in_their_order_and_one_that_raises_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    first, last = Recorder(), Recorder()
    hooks, context = ConsumerHooks([first, Raising(), last]), a_context()
    with caplog.at_level(logging.INFO):
        hooks.before(context)
        hooks.after(context.ended(ConsumeReturnType.FAILED, 0.0))
    assert len(first.before) == len(first.after) == len(last.before) == len(last.after) == 1
    assert "the hook Raising.consume_message_before failed and is passed over: RuntimeError: before" in caplog.text
    assert "the hook Raising.consume_message_after failed and is passed over: RuntimeError: after" in caplog.text


def test_a_slow_hook_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ConsumerHooks([Slow()]).before(a_context())
    assert re.search(r"the hook Slow\.consume_message_before took \d+\.", caplog.text)


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (object(), "object is no hook: it has no consume_message_before and consume_message_after"),
        (OnlyBefore(), "OnlyBefore is no hook"),
        (AsyncHook(), "AsyncHook.consume_message_before is async; a hook is a plain function"),
    ],
)
def test_a_hook_with_other_methods_is_refused_at_once(hook: ConsumeMessageHook, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        ConsumerHooks([hook])


def test_a_context_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        a_context().status = ConsumeReturnType.SUCCESS  # type: ignore[misc]
