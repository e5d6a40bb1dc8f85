"""A server's TLS settings under RocketMQ's names (`tls.server.mode`, `tls.server.certPath`, ...), and its SSLContexts.

In Java these settings are JVM properties, or in the file `tls.config.file`. Here they are among a server's other
settings, or in such a file, which overrides them. Unlike Apache's servers, these servers do not make a test certificate
(`tls.test.mode.enable`): without a certificate they do not use TLS.
Sources: remoting/netty/TlsSystemConfig.java, TlsHelper.java, 5.4.0.
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import trio

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network.server import TlsMode
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire
from pyrmq_core.protocol.java.properties_text import parse_java_properties

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 10.0
CONFIG_FILE: Final = "tls.config.file"
HIDDEN: Final = "********"
CLIENT_AUTH: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


def _secret(name: str) -> str:
    text: str = dataclasses.field(default="", repr=False, metadata={"wire": name})
    return text


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings: `server_*` for the server's port, `client_*` and `enable` for its requests to other servers.

    Paths name PEM files. A key's password is left out of the `repr`, and hidden in `to_settings` by default.
    """

    config_file: str = wire(CONFIG_FILE, "")
    server_mode: str = wire("tls.server.mode", "permissive")
    server_cert_path: str = wire("tls.server.certPath", "")
    server_key_path: str = wire("tls.server.keyPath", "")
    server_key_password: str = _secret("tls.server.keyPassword")
    server_need_client_auth: str = wire("tls.server.need.client.auth", "none")
    server_auth_client: bool = wire("tls.server.authClient", False)
    server_trust_cert_path: str = wire("tls.server.trustCertPath", "")
    enable: bool = wire("tls.enable", False)
    client_cert_path: str = wire("tls.client.certPath", "")
    client_key_path: str = wire("tls.client.keyPath", "")
    client_key_password: str = _secret("tls.client.keyPassword")
    client_auth_server: bool = wire("tls.client.authServer", False)
    client_trust_cert_path: str = wire("tls.client.trustCertPath", "")

    @property
    def mode(self) -> TlsMode:
        """The TLS mode of the server's port. Without a certificate, mode `permissive` means no TLS."""
        return TlsMode(self.server_mode)

    def to_settings(self, *, secrets: bool = False) -> dict[str, str]:
        """Returns all settings by RocketMQ's names, with a mask in place of each password.

        With `secrets`, the passwords are shown. If `config_file` is set, they are left out: that file may have them.
        """
        settings = encode_fields(self)
        if not secrets:
            return {**settings, **{name: HIDDEN for name in SECRET_NAMES if settings[name]}}
        return {name: text for name, text in settings.items() if not self.config_file or name not in SECRET_NAMES}

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """Returns a copy changed by `settings`, which have RocketMQ's names, then by those in `tls.config.file`.

        Settings that are not about TLS are ignored. Raises `InvalidArgument` for a wrong value.
        """
        settings = {**settings, **_file_settings(settings.get(CONFIG_FILE, self.config_file).strip())}
        own = {name: value.strip() for name, value in settings.items() if name in NAMES}
        for name in BOOLEANS & own.keys():
            if own[name].lower() not in ("true", "false"):
                raise InvalidArgument(f"{name}={own[name]}: true or false is wanted")
        changed: Self = decode_fields(type(self), {**encode_fields(self), **own}, "TLS settings")
        changed = replace(
            changed,
            server_mode=changed.server_mode.lower(),
            server_need_client_auth=changed.server_need_client_auth.lower(),
        )
        if changed.server_mode not in MODES:
            raise InvalidArgument(f"tls.server.mode={changed.server_mode}: {', '.join(MODES)} exist")
        if changed.server_need_client_auth not in CLIENT_AUTH:
            possible = ", ".join(CLIENT_AUTH)
            raise InvalidArgument(f"tls.server.need.client.auth={changed.server_need_client_auth}: {possible} exist")
        return changed

    def server_context(self) -> ssl.SSLContext | None:
        """Returns the port's SSLContext, or None if TLS is disabled or no certificate is set.

        Raises `InvalidArgument` for wrong settings.
        """
        if self.mode is TlsMode.DISABLED:
            return None
        if not self.server_cert_path:
            if self.mode is TlsMode.ENFORCING:
                raise InvalidArgument("tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_cert(context, "server", self.server_cert_path, self.server_key_path, self.server_key_password)
        context.verify_mode = CLIENT_AUTH[self.server_need_client_auth]
        if context.verify_mode is not ssl.CERT_NONE:
            _load_trust(context, "tls.server.trustCertPath", self.server_trust_cert_path)
        return context

    def client_context(self) -> ssl.SSLContext | None:
        """Returns the SSLContext for requests to other servers, or None unless `tls.enable` is set.

        As in Apache's servers, the peer's certificate is checked only with `tls.client.authServer`, and the host name
        in it never. Raises `InvalidArgument` for files that cannot be used.
        """
        if not self.enable:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        if self.client_auth_server:
            _load_trust(context, "tls.client.trustCertPath", self.client_trust_cert_path)
        else:
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert_path:
            _load_cert(context, "client", self.client_cert_path, self.client_key_path, self.client_key_password)
        return context


async def watch_certificate(settings: TlsSettings, context: ssl.SSLContext) -> None:
    """Loads the certificate of `settings` into `context` whenever its files change (srvutil/FileWatchService.java).

    Later handshakes use it. If it cannot be used, this is logged, and the old one stays. Runs until cancelled.
    """
    loaded_stamps = _stamps(settings)
    while True:
        await trio.sleep(WATCH_SECONDS)
        stamps = await trio.to_thread.run_sync(_stamps, settings)
        if stamps == loaded_stamps:
            continue
        loaded_stamps = stamps
        files = (settings.server_cert_path, settings.server_key_path, settings.server_key_password)
        try:
            # Loaded into another context first: if the key does not fit, the certificate alone would stay in `context`.
            for tls_context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
                _load_cert(tls_context, "server", *files)
        except InvalidArgument as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("the certificate in %s was renewed", settings.server_cert_path)


def _stamps(settings: TlsSettings) -> list[int]:
    return [_stamp(Path(path).expanduser()) for path in (settings.server_cert_path, settings.server_key_path) if path]


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _file_settings(path: str) -> dict[str, str]:
    if not path:
        return {}
    try:
        return parse_java_properties(Path(path).expanduser().read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read {CONFIG_FILE} {path}: {error}") from error


def _load_cert(context: ssl.SSLContext, end: str, cert: str, key: str, password: str) -> None:
    try:
        context.load_cert_chain(Path(cert).expanduser(), Path(key).expanduser() if key else None, password)
    except (OSError, ssl.SSLError) as error:
        names = f"tls.{end}.certPath {cert} and tls.{end}.keyPath {key}"
        raise InvalidArgument(f"{names} cannot be used: {_reason(error)}; give a PEM certificate and its key") from None


def _load_trust(context: ssl.SSLContext, name: str, path: str) -> None:
    if not path:
        raise InvalidArgument(f"{name} is missing: certificates that are asked for are checked against it")
    try:
        context.load_verify_locations(Path(path).expanduser())
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(f"{name} {path} cannot be used: {_reason(error)}; give PEM certificates") from None


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


NAMES: Final = frozenset(str(row.metadata["wire"]) for row in dataclasses.fields(TlsSettings))
SECRET_NAMES: Final = frozenset(str(row.metadata["wire"]) for row in dataclasses.fields(TlsSettings) if not row.repr)
BOOLEANS: Final = frozenset(str(row.metadata["wire"]) for row in dataclasses.fields(TlsSettings) if row.type == "bool")
MODES: Final = tuple(mode.value for mode in TlsMode)
