"""`UserFile`: the users and policies of a server, and the JSON file that stores them.

The file is read at the start. Each change is written to it before it takes effect. The file contains passwords in clear
text, since signatures are computed with them, so a new file is readable by its owner only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.servers.access.file_replacement import replace_file
from pyrmq_core.servers.access.guard import Verdict
from pyrmq_core.servers.access.settings import AccessSettings
from pyrmq_core.servers.access.users.changes import create_user
from pyrmq_core.servers.access.users.rules import CheckScope, UserRules
from pyrmq_core.servers.access.users.values import SUPER, User, acl_members, policies_of, user_of

log = line_logger(__name__)

FILE_NAME: Final = "authUsers.json"


class UserFile:
    """The users and policies of a server, in a file, or only in memory if the path is None."""

    def __init__(self, path: Path | None) -> None:
        self.rules = UserRules()
        self._path = path
        self._turn = trio.Lock()

    def load(self, settings: AccessSettings) -> None:
        """Reads the users' file. Users that `settings` name and the file lacks are added as super users.

        Raises `StoreError` if the file cannot be read or written.
        """
        if self._path is not None and self._path.exists():
            try:
                self.rules = read_rules(self._path.read_bytes())
            except (OSError, BodyError, InvalidArgument) as error:
                raise StoreError(f"the users in {self._path} cannot be read: {error}; restore the file") from error
        rules = self.rules
        for given in (settings.initial_user, settings.inner_client):
            if given is not None and given.name not in rules.users:
                rules = create_user(rules, User(given.name, given.password, SUPER))
        if rules is not self.rules:
            self._write(rules)
            self.rules = rules
        if not rules.users:
            log.warning("there is no user, and initAuthenticationUser names none: every request is denied")

    async def change(self, change: Callable[[UserRules], UserRules]) -> None:
        """Replaces the users and policies by the result of `change`, after writing it to the file.

        If `change` raises `InvalidArgument`, or the file cannot be written (`StoreError`), nothing is changed.
        """
        async with self._turn:
            rules = change(self.rules)
            if rules is self.rules:
                return
            await trio.to_thread.run_sync(self._write, rules)
            self.rules = rules

    def _write(self, rules: UserRules) -> None:
        if self._path is None:
            return
        members = {
            "acls": [acl_members(subject, policies) for subject, policies in rules.policies.items()],
            "users": [user.to_members() for user in rules.users.values()],
        }
        try:  # `indent` would be slow, so the line breaks are in `separators`
            text = json.dumps(members, ensure_ascii=False, separators=(",\n", ": "))
            replace_file(self._path, text.encode() + b"\n")
        except (OSError, UnicodeEncodeError) as error:
            raise StoreError(f"the users cannot be written to {self._path}: {error}") from error


def user_file(settings: AccessSettings, folder: Path | None) -> UserFile | None:
    """Returns a server's users and policies, read from their file, or None if authenticationEnabled is false.

    The file lies in the folder of the setting authConfigPath, or else in `folder`. Without both, nothing is stored on
    disk.
    """
    if not settings.authentication_enabled:
        return None
    chosen = Path(settings.auth_config_path).expanduser() if settings.auth_config_path else folder
    users = UserFile(None if chosen is None else chosen / FILE_NAME)
    users.load(settings)
    return users


def user_verdict(users: UserFile, settings: AccessSettings, cluster: str) -> Verdict:
    """Returns the function that checks each request. It answers a denied request with NO_PERMISSION and the reason."""
    scope = CheckScope(
        cluster,
        settings.authorization_enabled,
        _codes(settings.authentication_whitelist),
        _codes(settings.authorization_whitelist),
    )

    def verdict(request: Command, ip: str) -> Command | None:
        reason = users.rules.denial(request, ip, scope)
        return refusal(ResponseCode.NO_PERMISSION, reason) if reason else None

    return verdict


def _codes(text: str) -> frozenset[str]:
    return frozenset(code.strip() for code in text.split(",") if code.strip())


def read_rules(content: bytes) -> UserRules:
    """Decodes the users and policies in a file's content. Raises `BodyError` or `InvalidArgument` on failure."""
    members = load_object(content, FILE_NAME)
    users = [user_of(members_of_user) for members_of_user in _objects(members.get("users"))]
    acls = [(str(acl.get("subject")), policies_of(acl.get("policies"))) for acl in _objects(members.get("acls"))]
    return UserRules({user.username: user for user in users}, dict(acls))


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidArgument("users and acls are lists of objects")
    return value
