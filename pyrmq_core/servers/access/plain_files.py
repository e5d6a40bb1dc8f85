"""`PlainAcl`: the files of plain ACL (access control of RocketMQ 4), their rules, and administrators' changes to them.

The files are `conf/plain_acl.yml` below RocketMQ's home and all `.yml` and `.yaml` below `conf/acl` except `tools.yml`.
They are read at the start and whenever one changes. If a changed file is invalid, an error is logged and the old rules
stay. Source: acl/plain/PlainPermissionManager.java, srvutil/AclFileWatchService.java (4.9.7).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core.errors import InvalidArgument, StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.framing.header_requests import ACL_REFUSAL
from pyrmq_core.servers.access.file_replacement import replace_file
from pyrmq_core.servers.access.guard import Verdict
from pyrmq_core.servers.access.plain.rules import (
    PlainRules,
    advance_version,
    put_account,
    put_white_addresses,
    remove_account,
    rules_of,
    version_of,
)
from pyrmq_core.servers.access.settings import AccessSettings
from pyrmq_core.servers.access.yaml_text import check_library, dump_document, load_document

log = line_logger(__name__)

WATCH_SECONDS: Final = 5.0  # between checks of the files (AclFileWatchService.WATCH_INTERVAL)
ENDINGS: Final = (".yml", ".yaml")
TOOLS_FILE: Final = "tools.yml"
MAX_FILE_BYTES: Final = 16 << 20

Documents = dict[Path, dict[str, Any]]
Stamp = tuple[tuple[str, int, int, int], ...]


class PlainAcl:
    """The rules of a broker's plain ACL, which are read from YAML files.

    A change that an administrator requests is written to its file before it takes effect.
    """

    def __init__(self, home: Path) -> None:
        self.rules = PlainRules()
        self.versions: Mapping[str, tuple[int, int]] = {}
        self.documents: Documents = {}
        self._default = home / "conf" / "plain_acl.yml"
        self._folder = home / "conf" / "acl"
        self._stamp: Stamp = ()
        self._turn = trio.Lock()

    @property
    def default_file(self) -> Path:
        return self._default

    def load(self) -> None:
        """Reads all files. Raises `InvalidArgument` if one is invalid, and `MissingLibrary` without PyYAML."""
        check_library()
        self._stamp = self._stamps()
        self._use(self._read())
        if not self.rules.accounts and not self.rules.white_addresses:
            log.warning("no account and no white address in %s: every request is denied", self._default)

    async def run(self) -> None:
        """Checks every few seconds for added, changed and removed files and reads them again, until cancelled."""
        while True:
            await trio.sleep(WATCH_SECONDS)
            async with self._turn:
                await self.refresh()

    async def refresh(self) -> None:
        """Reads the files if one has changed. If one is invalid, that is logged and the old rules stay."""
        try:
            stamp = await trio.to_thread.run_sync(self._stamps)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            documents = await trio.to_thread.run_sync(self._read)
            emptied = [path for path, document in documents.items() if not document and self.documents.get(path)]
            if emptied:
                raise InvalidArgument(f"{emptied[0]} is empty")
            self._use(documents)
        except (InvalidArgument, OSError) as error:
            log.error("the rules of plain ACL stay as they were: %s", error)
        else:
            log.info("the rules of plain ACL were read again: %d accounts", len(self.rules.accounts))

    async def put_account(self, account: Mapping[str, object]) -> None:
        """Adds a new account to `plain_acl.yml`, or changes an existing one in the file that has it.

        Raises `InvalidArgument` if the account is invalid, and `StoreError` if the file cannot be written.
        """
        path = Path(self.rules.files.get(str(account["accessKey"]), self._default))
        await self._change(path, partial(put_account, account=account))

    async def remove_account(self, access_key: str) -> bool:
        """Removes an account from its file. Returns False if no file has it."""
        path = self.rules.files.get(access_key)
        if path is None:
            return False
        await self._change(Path(path), partial(remove_account, access_key=access_key))
        return True

    async def put_white_addresses(self, addresses: Sequence[str], file: str) -> bool:
        """Sets the client addresses that a file of plain ACL allows without a signature (globalWhiteRemoteAddresses).

        An empty `file` means `plain_acl.yml`. Returns False, with nothing written, if `file` is no file of plain ACL.
        """
        path = Path(file) if file else self._default
        if path != self._default and path not in self.documents:
            return False
        await self._change(path, partial(put_white_addresses, addresses=addresses))
        return True

    async def _change(self, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        async with self._turn:
            changed = await trio.to_thread.run_sync(self._changed, path, change)
            self._use(changed)
            self._stamp = await trio.to_thread.run_sync(self._stamps)

    def _changed(self, path: Path, change: Callable[[dict[str, Any]], None]) -> Documents:
        """Applies `change` to the content of the file `path`, and writes it if all rules are valid afterwards.

        Returns the contents of all files of plain ACL.
        """
        documents = self._read()
        document = documents.setdefault(path, {})
        change(document)
        advance_version(document, time.time_ns() // 1_000_000)
        _rules(documents)
        try:
            replace_file(path, dump_document(document))
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}") from error
        return documents

    def _use(self, documents: Documents) -> None:
        rules = _rules(documents)
        for key in rules.repeated:
            log.warning("account %s is in more than one file; the first counts: %s", key, rules.files[key])
        self.rules, self.documents = rules, documents
        self.versions = {str(path): version_of(document) for path, document in documents.items()}

    def _read(self) -> Documents:
        return {path: _document(path) for path in self._paths()}

    def _paths(self) -> list[Path]:
        """Returns the files of plain ACL, except in hidden folders, where Kubernetes keeps older copies."""
        paths = [path for path in sorted(self._folder.rglob("*")) if path.suffix in ENDINGS and path.is_file()]
        shown = [path for path in paths if not any(part[0] == "." for part in path.relative_to(self._folder).parts)]
        listed = [path for path in shown if path != self._folder / TOOLS_FILE]
        return [*listed, self._default] if self._default.exists() else listed

    def _stamps(self) -> Stamp:
        stats = [(path, path.stat()) for path in self._paths()]
        return tuple((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino) for path, stat in stats)


def plain_acl(settings: AccessSettings) -> PlainAcl | None:
    """Returns the loaded plain ACL, or None unless `aclEnable`. Raises `InvalidArgument` for a bad file or setting."""
    if not settings.acl_enable:
        return None
    if settings.home is None:
        raise InvalidArgument("aclEnable=true needs rocketmqHome (or ROCKETMQ_HOME), with conf/plain_acl.yml below it")
    acl = PlainAcl(settings.home.absolute())
    acl.load()
    return acl


def _rules(documents: Documents) -> PlainRules:
    return rules_of((str(path), document) for path, document in documents.items())


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidArgument(f"it has more than {MAX_FILE_BYTES} bytes")
        return dict(load_document(path.read_bytes()))
    except (InvalidArgument, OSError) as error:
        raise InvalidArgument(f"{path}: {error}") from error


def plain_verdict(acl: PlainAcl) -> Verdict:
    """Returns the function that checks each request. It answers a denied request with SYSTEM_ERROR and the reason."""

    def verdict(request: Command, ip: str) -> Command | None:
        reason = acl.rules.denial(request, ip)
        return refusal(ResponseCode.SYSTEM_ERROR, f"{ACL_REFUSAL}: {reason}") if reason else None

    return verdict
