"""`AccessControl`: a server's access control, which its settings choose: plain ACL, users with policies, or none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.guard import MAX_BODY_BYTES, Guard
from pyrmq_core.servers.access.plain_files import PlainAcl, plain_acl, plain_verdict
from pyrmq_core.servers.access.settings import AccessSettings
from pyrmq_core.servers.access.user_file import UserFile, user_file, user_verdict


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The access control of a server: `guard` checks its requests, by the rules in `plain` or in `users`.

    If `guard` is None, all requests are allowed.
    """

    guard: Guard | None = None
    plain: PlainAcl | None = None
    users: UserFile | None = None

    def denied(self, request: Command, peer: Peer) -> Command | None:
        return None if self.guard is None else self.guard.denied(request, peer)

    async def run(self) -> None:
        """Rereads the files of plain ACL when they change, until cancelled. Returns at once if plain ACL is off."""
        if self.plain is not None:
            await self.plain.run()


async def access_control(
    settings: AccessSettings, *, cluster: str, folder: Path | None, max_body_bytes: int = MAX_BODY_BYTES
) -> AccessControl:
    """Returns the access control that the settings enable, after reading its files.

    Users are stored in a file in `folder` or, if it is None and authConfigPath is not set, only in memory. Requests in
    `guard.READ_BODIES` are denied if their body exceeds `max_body_bytes`. Raises `InvalidArgument` or `StoreError` if a
    file cannot be used, and `MissingLibrary` if plain ACL needs PyYAML.
    """
    plain = await trio.to_thread.run_sync(plain_acl, settings)
    if plain is not None:
        return AccessControl(Guard(plain_verdict(plain), max_body_bytes), plain=plain)
    users = await trio.to_thread.run_sync(user_file, settings, folder)
    if users is not None:
        return AccessControl(Guard(user_verdict(users, settings, cluster), max_body_bytes), users=users)
    return AccessControl()
