"""Requests and responses whose content is header fields alone, and the error that a refusal becomes.

A file under `requests/` holds a request and its response as frozen dataclasses. Each is written as a `Command`
(`to_command`) and read from one (`from_command`), so client, server and tests use the same two methods.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from pyrmq_core.errors import ResponseError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode, request_name, response_name
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields


class HeaderRequest:
    """A request that is header fields only."""

    __slots__ = ()
    CODE: ClassVar[RequestCode]

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, request_name(command.code))


class HeaderResponse:
    """A successful response that is header fields only."""

    __slots__ = ()

    def to_command(self) -> Command:
        return success(encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, cls.__name__)


# The remedy for a refusal; these texts end a ResponseError.
REMEDIES: Final = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load; send less at once or retry later",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "the server is older than this request, or leaves it out; see the docs",
    ResponseCode.MESSAGE_ILLEGAL: "make the message smaller or correct it; the broker's maxMessageSize may be lower",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker cannot write (disk full, stopping, or a slave); look at its disk",
    ResponseCode.NO_PERMISSION: "check the topic's permission and, with ACL on, the access key and its policies",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or switch on autoCreateTopicEnable at the broker",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or switch autoCreateSubscriptionGroup on",
    ResponseCode.INVALID_PARAMETER: "correct the named value",
}


# A 4.9 broker refuses a signature with this remark and SYSTEM_ERROR, before it looks at the request.
ACL_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException"


def response_error(answer: Command, request_code: int, address: str, about: str = "") -> ResponseError:
    """Returns the error for an answer other than SUCCESS; `about` names the topic, group or queue."""
    remark = (answer.remark or "").strip()
    subject = f" for {about}" if about else ""
    reason = f": {' '.join(remark.split())}" if remark else ""  # Java's stack traces stay in one line
    code = ResponseCode.NO_PERMISSION if remark.startswith(ACL_REFUSAL) else answer.code
    remedy = f"; {REMEDIES[ResponseCode(code)]}" if code in REMEDIES else ""
    if request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC and code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        remedy = "; a broker answers so: name a NameServer's address, whose port is 9876 by default"
    return ResponseError(
        f"{address} answered {request_name(request_code)}{subject} with {response_name(answer.code)}{reason}{remedy}",
        code=answer.code,
        remark=remark,
        address=address,
    )
