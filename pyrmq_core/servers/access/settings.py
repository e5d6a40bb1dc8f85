"""The settings of a server's access control, by RocketMQ's names, and the checks of their values.

A value is refused if this server would protect less with it than RocketMQ does. The error names the setting. Sources:
auth/config/AuthConfig.java (5.4.0), common/BrokerConfig.java (`aclEnable`, `rocketmqHome`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pyrmq_core.errors import BodyError, InvalidArgument
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire
from pyrmq_core.protocol.java.json_text import load_object

HIDDEN: Final = "********"
USER_CODES: Final = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
HOME_VARIABLE: Final = "ROCKETMQ_HOME"
_AUTH: Final = "org.apache.rocketmq.auth"
# The class names that a setting may have: those of RocketMQ's own classes. They have no effect here.
CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "authenticationProvider": (f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        f"{_AUTH}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        f"{_AUTH}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_AUTH}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}


def _secret(name: str) -> str:
    text: str = dataclasses.field(default="", repr=False, metadata={"wire": name})
    return text


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password, or an access key and its secret key."""

    name: str
    password: str = dataclasses.field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The settings of access control: of plain ACL (4.x), and of users with policies (5.x).

    Passwords are absent from `repr`, and hidden in `to_settings` by default.
    """

    acl_enable: bool = wire("aclEnable", False)
    rocketmq_home: str = wire("rocketmqHome", "")
    authentication_enabled: bool = wire("authenticationEnabled", False)
    authentication_provider: str = wire("authenticationProvider", "")
    authentication_metadata_provider: str = wire("authenticationMetadataProvider", "")
    authentication_strategy: str = wire("authenticationStrategy", "")
    authentication_whitelist: str = wire("authenticationWhitelist", "")
    init_authentication_user: str = _secret("initAuthenticationUser")
    inner_client_authentication_credentials: str = _secret("innerClientAuthenticationCredentials")
    authorization_enabled: bool = wire("authorizationEnabled", False)
    authorization_provider: str = wire("authorizationProvider", "")
    authorization_metadata_provider: str = wire("authorizationMetadataProvider", "")
    authorization_strategy: str = wire("authorizationStrategy", "")
    authorization_whitelist: str = wire("authorizationWhitelist", "")
    migrate_auth_from_v1_enabled: bool = wire("migrateAuthFromV1Enabled", False)
    auth_config_path: str = wire("authConfigPath", "")

    @property
    def is_on(self) -> bool:
        return self.acl_enable or self.authentication_enabled or self.authorization_enabled

    @property
    def home(self) -> Path | None:
        """The folder above plain ACL's `conf`: rocketmqHome, or else the variable ROCKETMQ_HOME, or None."""
        text = self.rocketmq_home or os.environ.get(HOME_VARIABLE, "")
        return Path(text).expanduser() if text else None

    @property
    def initial_user(self) -> Credentials | None:
        return _credentials("initAuthenticationUser", self.init_authentication_user, "username", "password")

    @property
    def inner_client(self) -> Credentials | None:
        text = self.inner_client_authentication_credentials
        return _credentials("innerClientAuthenticationCredentials", text, "accessKey", "secretKey")

    def to_settings(self, *, secrets: bool = False) -> dict[str, str]:
        settings = encode_fields(self)
        return settings if secrets else {**settings, **{name: HIDDEN for name in SECRET_NAMES if settings[name]}}

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """Returns a copy with these settings, but ignores unknown names. Raises `InvalidArgument` for a bad value."""
        own = {name: value.strip() for name, value in settings.items() if name in NAMES}
        for name in BOOLEANS & own.keys():
            own[name] = own[name].lower() or "false"
            if own[name] not in ("true", "false"):
                raise InvalidArgument(f"{name}={own[name]}: true or false is wanted")
        changed: Self = decode_fields(type(self), {**encode_fields(self), **own}, "access settings")
        changed._check(own)
        return changed

    def _check(self, given: Mapping[str, str]) -> None:
        if self.migrate_auth_from_v1_enabled:
            raise InvalidArgument(
                "migrateAuthFromV1Enabled=true: plain_acl.yml is not imported into users and policies here; set it to "
                "false, and create them (mqadmin createUser, createAcl), or keep the file with aclEnable=true"
            )
        if self.authorization_enabled and not self.authentication_enabled:
            raise InvalidArgument(
                "authorizationEnabled=true needs authenticationEnabled=true: without it any name could be claimed"
            )
        if self.acl_enable and self.authentication_enabled:
            raise InvalidArgument("aclEnable=true and authenticationEnabled=true are two forms; set one to false")
        exempt = {code.strip() for code in self.authentication_whitelist.split(",")}
        if exempt & set(map(str, USER_CODES)):
            raise InvalidArgument("authenticationWhitelist names a code of 3001 to 3010: these change users; remove it")
        for name, classes in CLASSES.items():
            if given.get(name) and given[name] not in classes:
                raise InvalidArgument(f"{name}={given[name]}: {' and '.join(classes)} exist here, and an empty value")
        # Reads the two properties to check their texts at the start, and not at the first request.
        for user in (self.initial_user, self.inner_client):
            if self.authentication_enabled and user is not None and not (user.name and user.password):
                raise InvalidArgument("initAuthenticationUser and innerClientAuthenticationCredentials need both parts")


def _credentials(setting: str, text: str, name: str, password: str) -> Credentials | None:
    if not text:
        return None
    wanted = f'{setting}: {{"{name}":"...","{password}":"..."}} is wanted'
    try:
        members: dict[str, Any] = load_object(text.encode(), setting)
    except BodyError as error:
        raise InvalidArgument(wanted) from error  # the error omits the text, which has a password
    values = (members.get(name), members.get(password))
    if not all(isinstance(value, str) for value in values):
        raise InvalidArgument(wanted)
    return Credentials(str(values[0]), str(values[1]))


def without_plain_acl(settings: AccessSettings) -> AccessSettings:
    """Returns the settings unchanged. Raises `InvalidArgument` if they enable plain ACL, which no NameServer has."""
    if settings.acl_enable:
        raise InvalidArgument(
            "aclEnable=true: plain_acl.yml is for brokers alone, in RocketMQ too; leave it false, and give the "
            "NameServer users (authenticationEnabled=true)"
        )
    return settings


_FIELDS: Final = {str(row.metadata["wire"]): str(row.type) for row in dataclasses.fields(AccessSettings)}
NAMES: Final = frozenset(_FIELDS)
BOOLEANS: Final = frozenset(name for name, kind in _FIELDS.items() if kind == "bool")
SECRET_NAMES: Final = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
