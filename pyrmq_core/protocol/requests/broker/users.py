"""Administration of users (3001 to 3005) and of their policies (3006 to 3010), by brokers and NameServers.

A user is `{"username","password","userType","userStatus"}`, policies are
`{"subject":"User:x","policies":[{"policyType","entries":[{"resource","actions","sourceIps","decision"}]}]}`.

The body of the answer is one user for request 3004, a list of users for 3005, one user's policies for 3009, and a list
of such policies for 3010. It is empty if nothing is found. The answers to the other requests have only a code. Sources:
remoting/protocol/header/{Create,Update,Delete,Get}{User,Acl}RequestHeader.java, ListUsersRequestHeader.java,
ListAclsRequestHeader.java, body/UserInfo.java, AclInfo.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object


@dataclass(frozen=True, slots=True)
class CreateUser:
    """A request to create a user. `members` is the JSON body."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_CREATE_USER
    username: str
    members: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_command(self) -> Command:
        return Command(self.CODE, {"username": self.username}, dumps(dict(self.members)))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(command.ext.get("username", ""), load_object(command.body, "user"))


@dataclass(frozen=True, slots=True)
class UpdateUser(CreateUser):
    """A request to change a user. Members that are missing in the body stay unchanged."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_UPDATE_USER


@dataclass(frozen=True, slots=True)
class DeleteUser(HeaderRequest):
    """A request to remove a user, together with the policies about this user."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_DELETE_USER
    username: str = wire("username", "")


@dataclass(frozen=True, slots=True)
class GetUser(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.AUTH_GET_USER
    username: str = wire("username", "")


@dataclass(frozen=True, slots=True)
class ListUsers(HeaderRequest):
    """A request for all users whose name contains the text `filter`."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_LIST_USER
    filter: str = wire("filter", "")


@dataclass(frozen=True, slots=True)
class CreateAcl:
    """A request to add policies about what `subject`, such as `User:x`, may do. `members` is the JSON body."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_CREATE_ACL
    subject: str
    members: Mapping[str, Any] = field(default_factory=dict)

    def to_command(self) -> Command:
        return Command(self.CODE, {"subject": self.subject}, dumps(dict(self.members)))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(command.ext.get("subject", ""), load_object(command.body, "acl"))


@dataclass(frozen=True, slots=True)
class UpdateAcl(CreateAcl):
    """A request to change policies. RocketMQ handles it in the same way as `CreateAcl`."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_UPDATE_ACL


@dataclass(frozen=True, slots=True)
class DeleteAcl(HeaderRequest):
    """A request to remove all policies of a subject, or only their entry for `resource`."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_DELETE_ACL
    subject: str = wire("subject", "")
    policy_type: str | None = wire("policyType", None)
    resource: str | None = wire("resource", None)


@dataclass(frozen=True, slots=True)
class GetAcl(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.AUTH_GET_ACL
    subject: str = wire("subject", "")


@dataclass(frozen=True, slots=True)
class ListAcls(HeaderRequest):
    """A request for policies whose subject contains `subject_filter` and whose resource contains `resource_filter`."""

    CODE: ClassVar[RequestCode] = RequestCode.AUTH_LIST_ACL
    subject_filter: str = wire("subjectFilter", "")
    resource_filter: str = wire("resourceFilter", "")
