"""The options of every command that connects to servers, as one value."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from pyrmq_core.errors import InvalidArgument

if TYPE_CHECKING:  # imported when a command runs, so that its help is fast
    import ssl

    from pyrmq_core import Client
    from pyrmq_core.client.admin.admin import Admin

Command = TypeVar("Command", bound=Callable[..., Any])

TIMEOUT_SECONDS: Final = 5.0
MAX_CREDENTIALS_BYTES: Final = 65536
# The names in mqadmin's conf/tools.yml (tools/command/MQAdminStartup.java, getAclRPCHook).
FILE_KEYS: Final = {"access_key": "accessKey", "secret_key": "secretKey", "security_token": "securityToken"}

FULL: Final = "full"
AUTHORITY: Final = "ca"
UNVERIFIED: Final = "none"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The options about TLS. Each of them turns TLS on, except for the client's key and its password."""

    enabled: bool = False
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: str | None = None

    def context(self) -> ssl.SSLContext | None:
        """Returns the SSLContext for all connections, or None without TLS. Raises `InvalidArgument` for bad files."""
        if not (self.enabled or self.authority or self.certificate or self.verify):
            if self.key:
                raise InvalidArgument("--tls-key belongs to a certificate: give --tls-cert, too")
            return None
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise InvalidArgument(f"--tls-ca {self.authority}: no certificates in PEM form: {error}") from None
        if self.verify in (AUTHORITY, UNVERIFIED):
            context.check_hostname = False
        if self.verify == UNVERIFIED:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            try:  # always with a password, since OpenSSL would otherwise ask for one on the terminal
                context.load_cert_chain(self.certificate, self.key, self.key_password or "")
            except (OSError, ValueError) as error:
                where = f"--tls-cert {self.certificate}, --tls-key {self.key or self.certificate}"
                raise InvalidArgument(f"{where}: no certificate with its key in PEM form: {error}") from None
        return context


@dataclass(frozen=True, slots=True)
class Connection:
    """The options by which a command connects: NameServers, namespace, keys and TLS. `timeout` is in seconds."""

    nameserver: str | None = None
    nameserver_url: str | None = None
    namespace: str | None = None
    namespace_v2: str | None = None
    unit_name: str | None = None
    timeout: float = TIMEOUT_SECONDS
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: TlsOptions = TlsOptions()

    def client(self) -> Client:
        """Returns a new client. Raises `InvalidArgument` for options that do not fit together."""
        from pyrmq_core import Client

        if bool(self.access_key) != bool(self.secret_key):
            raise InvalidArgument("an access key and a secret key belong together; give both or neither")
        return Client(
            nameserver=self.nameserver,
            nameserver_url=self.nameserver_url,
            namespace_v2=self.namespace_v2,
            unit_name=self.unit_name,
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            tls=self.tls.context(),
        )

    def at(self, nameserver: str) -> Connection:
        return replace(self, nameserver=nameserver, nameserver_url=None)

    async def nameservers(self) -> tuple[str, ...]:
        """Returns the NameServers' addresses, from the option or from the list that `nameserver_url` serves.

        Returns an empty tuple if the URL cannot be read.
        """
        if self.nameserver_url is None:
            return tuple(address for address in re.split(r"[;,\s]+", self.nameserver or "") if address)
        async with self.client() as client:
            return client._session.nameservers.addresses

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        from pyrmq_core import Admin

        async with (
            self.client() as client,
            Admin(client=client, timeout=self.timeout, namespace=self.namespace) as admin,
        ):
            yield admin


class ConnectionOption(click.Option):
    """An option about the connection to servers, which each command's help lists last."""


def connection_options(command: Command) -> Command:
    """Adds the options for connections to a command, and passes it their values as `connection`."""

    @functools.wraps(command)
    def connected(**arguments: Any) -> Any:
        return command(connection=connection_of(arguments), **arguments)

    for add in reversed(OPTIONS):
        connected = add(connected)
    return connected  # type: ignore[return-value]  # the same function to click, which calls it by names


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, cls=ConnectionOption, **settings)


_file = click.Path(exists=True, dir_okay=False)

OPTIONS: Final = (
    _option(
        "-n",
        "--namesrv-addr",
        "nameserver",
        envvar="NAMESRV_ADDR",
        help="NameServers, host:port;host:port  [NAMESRV_ADDR]",
    ),
    _option(
        "--nameserver-url",
        envvar="PYRMQ_NAMESERVER_URL",
        metavar="URL",
        help="A page with the list of NameServers, in place of -n.  [PYRMQ_NAMESERVER_URL]",
    ),
    _option(
        "--unit-name", envvar="PYRMQ_UNIT_NAME", help="RocketMQ's unit, in client ids and the URL.  [PYRMQ_UNIT_NAME]"
    ),
    _option(
        "--namespace",
        "tenant",
        envvar="PYRMQ_NAMESPACE",
        help="The namespace before topics and groups.  [PYRMQ_NAMESPACE]",
    ),
    _option(
        "--namespace-v2",
        envvar="PYRMQ_NAMESPACE_V2",
        help="A 5.x namespace, sent with each request.  [PYRMQ_NAMESPACE_V2]",
    ),
    _option(
        "--timeout",
        envvar="PYRMQ_TIMEOUT",
        default=TIMEOUT_SECONDS,
        show_default=True,
        type=click.FloatRange(0, 3600, min_open=True),
        metavar="SECONDS",
        help="The time that one request may take.  [PYRMQ_TIMEOUT]",
    ),
    _option("--access-key", envvar="PYRMQ_ACCESS_KEY", help="The access key that signs requests.  [PYRMQ_ACCESS_KEY]"),
    _option(
        "--secret-key",
        envvar="PYRMQ_SECRET_KEY",
        help="Its secret; better in the variable or a file.  [PYRMQ_SECRET_KEY]",
    ),
    _option(
        "--credentials",
        envvar="PYRMQ_CREDENTIALS",
        type=_file,
        help="A file with accessKey and secretKey, as tools.yml.  [PYRMQ_CREDENTIALS]",
    ),
    _option("--tls", "tls_enabled", is_flag=True, envvar="PYRMQ_TLS", help="Encrypts every connection.  [PYRMQ_TLS]"),
    _option("--tls-ca", envvar="PYRMQ_TLS_CA", type=_file, help="Authorities to trust, PEM.  [PYRMQ_TLS_CA]"),
    _option("--tls-cert", envvar="PYRMQ_TLS_CERT", type=_file, help="The client's certificate, PEM.  [PYRMQ_TLS_CERT]"),
    _option(
        "--tls-key",
        envvar="PYRMQ_TLS_KEY",
        type=_file,
        help="The certificate's key, if in another file.  [PYRMQ_TLS_KEY]",
    ),
    _option(
        "--tls-verify",
        envvar="PYRMQ_TLS_VERIFY",
        type=click.Choice((FULL, AUTHORITY, UNVERIFIED)),
        help="full: authority and host; ca: as Java's clients, authority alone.  [PYRMQ_TLS_VERIFY]  [default: full]",
    ),
    # The password comes only from the environment: a command line is not secret.
    _option("--tls-key-password", envvar="PYRMQ_TLS_KEY_PASSWORD", hidden=True),
)


def connection_of(arguments: dict[str, Any]) -> Connection:
    """Returns the connection that a command's options describe, and removes these options from `arguments`."""
    keys: dict[str, str | None] = {name: arguments.pop(name, None) or None for name in ("access_key", "secret_key")}
    path = arguments.pop("credentials")
    stored = _credentials(path) if path else {}
    nameserver, url = arguments.pop("nameserver"), arguments.pop("nameserver_url") or None
    source = click.get_current_context().get_parameter_source("nameserver")
    return Connection(
        nameserver=None if url and source is ParameterSource.ENVIRONMENT else nameserver,
        nameserver_url=url,
        namespace=arguments.pop("tenant"),
        namespace_v2=arguments.pop("namespace_v2") or None,
        unit_name=arguments.pop("unit_name") or None,
        timeout=arguments.pop("timeout"),
        access_key=keys["access_key"] or stored.get("access_key"),
        secret_key=keys["secret_key"] or stored.get("secret_key"),
        security_token=stored.get("security_token"),
        tls=TlsOptions(
            enabled=arguments.pop("tls_enabled"),
            authority=arguments.pop("tls_ca"),
            certificate=arguments.pop("tls_cert"),
            key=arguments.pop("tls_key"),
            key_password=arguments.pop("tls_key_password"),
            verify=arguments.pop("tls_verify"),
        ),
    )


def _credentials(path: str) -> dict[str, str]:
    """Returns the keys in a file with lines `accessKey: text` or `accessKey=text`. No error shows its content."""
    from pyrmq_core.protocol.java.properties_text import parse_java_properties

    with Path(path).open("rb") as file:
        content = file.read(MAX_CREDENTIALS_BYTES)
    try:
        properties = parse_java_properties(content.decode())
    except ValueError:  # also InvalidArgument and UnicodeDecodeError
        properties = {}
    values = {name: properties.get(key, "").strip().strip("\"'") for name, key in FILE_KEYS.items()}
    credentials = {name: value for name, value in values.items() if value}
    if not credentials.keys() >= {"access_key", "secret_key"}:
        raise InvalidArgument(f"--credentials {path}: it has no lines accessKey: KEY and secretKey: SECRET")
    return credentials
