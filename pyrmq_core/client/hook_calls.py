"""Checks and calls the hooks of a producer, of a consumer and of a client.

Hooks are functions, never `async`. They run on the loop and delay all other work while they run. A hook that takes
longer than 0.1 s is logged by name. An exception of a hook is only logged, except that a check-forbidden hook refuses
the send by raising.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network.rare_lines import RareLines

log = logging.getLogger(__name__)

SLOW_SECONDS: Final = 0.1
_FAILED: Final = RareLines()
T = TypeVar("T")


def check_hooks(hooks: Sequence[object], kinds: Sequence[Sequence[str]]) -> None:
    """Raises `InvalidArgument` for an object that is no hook of any kind, or that has an async method of a hook.

    Each of `kinds` has the names of the methods of one kind. An async method would never run.
    """
    for hook in hooks:
        if not any(all(callable(getattr(hook, name, None)) for name in kind) for kind in kinds):
            required = ", or ".join(" and ".join(kind) for kind in kinds)
            raise InvalidArgument(f"{type(hook).__name__} is no hook: it has no {required}")
        for name in (name for kind in kinds for name in kind):
            if inspect.iscoroutinefunction(getattr(hook, name, None)):
                raise InvalidArgument(
                    f"{type(hook).__name__}.{name} is async; a hook is a plain function that does not wait"
                )


def quietly(hook: Callable[..., T], *args: object) -> T | None:
    try:
        return timed(hook, *args)
    except Exception as error:
        text = f"the hook {hook_name(hook)} failed and is passed over: {type(error).__name__}: {error}"
        if (line := _FAILED.of(text)).is_due():
            log.warning("%s%s", text, line.left_out(), exc_info=error)
        return None


def timed(hook: Callable[..., T], *args: object) -> T:
    began = time.monotonic()
    try:
        return hook(*args)
    finally:
        seconds = time.monotonic() - began
        if seconds > SLOW_SECONDS:
            log.info("the hook %s took %.1f s, and everything else waited for it", hook_name(hook), seconds)


def methods_of(hooks: Sequence[object], name: str) -> tuple[Callable[..., object], ...]:
    return tuple(method for hook in hooks if callable(method := getattr(hook, name, None)))


def hook_name(hook: Callable[..., object]) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)
