"""Base classes of requests and responses that have only header fields, and the error for a refused request.

A file under `requests/` has a request and its response as frozen dataclasses. `to_command` writes them as a `Command`,
and `from_command` reads them from one.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from pyrmq_core.errors import ResponseError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode, request_name, response_name
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields
from pyrmq_core.protocol.framing.remedies import remedy_of


class HeaderRequest:
    __slots__ = ()
    CODE: ClassVar[RequestCode]

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, request_name(command.code))


class HeaderResponse:
    __slots__ = ()

    def to_command(self) -> Command:
        return success(encode_fields(self))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return decode_fields(cls, command.ext, cls.__name__)


# The start of the remark with which a 4.9 broker refuses a wrong signature. Its response code is SYSTEM_ERROR.
ACL_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException"


def response_error(answer: Command, request_code: int, address: str, about: str = "") -> ResponseError:
    remark = (answer.remark or "").strip()
    subject = f" for {about}" if about else ""
    reason = f": {' '.join(remark.split())}" if remark else ""  # a remark may be a Java stack trace of many lines
    code = ResponseCode.NO_PERMISSION if remark.startswith(ACL_REFUSAL) else answer.code
    remedy = remedy_of(request_code, code, remark)
    ending = f"; {remedy}" if remedy else ""
    return ResponseError(
        f"{address} answered {request_name(request_code)}{subject} with {response_name(answer.code)}{reason}{ending}",
        code=answer.code,
        remark=remark,
        address=address,
    )
