"""Every command with keys that may only read: which commands work, and the one line of all others."""

from __future__ import annotations

from typing import Final

from click.testing import Result

from tests.support import commands
from tests.support.commands import asks_servers, filled

# Commands that change something; all others that call servers read.
CHANGING: Final = frozenset(
    (
        *("topic create", "topic delete", "send", "import"),
        *("group reset", "group seek", "group clone", "group create", "group delete", "dlq resend"),
        *("kv put", "kv delete"),
        *("broker clean", "broker wipe-write-perm", "broker add-write-perm"),
        *(f"acl user {verb}" for verb in ("create", "update", "delete")),
        *(f"acl policy {verb}" for verb in ("create", "update", "delete")),
        *(f"acl account {verb}" for verb in ("put", "delete", "white-addresses")),
    )
)
# Its group has no member here.
NEEDS_A_MEMBER: Final = frozenset({"group stack"})
# Commands that read or change, by their arguments: those with which they change, for a topic and group NAME.
CHANGES: Final = (
    "topic perm NAME r",
    "topic order NAME broker-a:1 broker-b:1",
    "topic order NAME --delete",
    "broker config broker-a --set fileReservedTime=71",
    "broker config --all --set fileReservedTime=71",
    "nameserver config --set orderMessageEnable=true",
)


def every_command(name: str) -> dict[str, list[str]]:
    """Returns the arguments of each command that calls servers, by its words, and those of `CHANGES`."""
    arguments = {
        words: filled(words, name)
        for words, command in commands.commands().items()
        if asks_servers(command) and words not in NEEDS_A_MEMBER
    }
    return arguments | {words: words.replace("NAME", name).split() for words in CHANGES}


def changes(words: str) -> bool:
    return words in CHANGING or words in CHANGES


def error_of(result: Result) -> str:
    """Returns the one line with which a command ended that failed, and checks that it is one."""
    assert result.exit_code == 1, (result.exit_code, result.output)
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.stderr.splitlines()[-1] == error
    return error
