"""Checks the signature of a request, which proves that its sender knows the secret key.

Signatures are compared in constant time. As in Java, replayed requests are not detected. Source:
auth/authentication/builder/DefaultAuthenticationContextBuilder.java, DefaultAuthenticationHandler.java (5.4.0).
"""

from __future__ import annotations

import hmac
from typing import Final

from pyrmq_core.protocol.acl import SIGNATURE, signature
from pyrmq_core.protocol.framing.command import Command

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
# MQVersion.V4_9_3: clients up to this version add `UNIQUE_KEY_QUERY` after signing, so signatures exclude it.
LAST_UNSIGNED_QUERY: Final = 399


def is_signed_with(request: Command, secret: str) -> bool:
    given, fields = request.ext.get(SIGNATURE), request.ext
    if given is None:
        return False
    if UNIQUE_KEY_QUERY in fields and request.version <= LAST_UNSIGNED_QUERY:
        fields = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    right = signature(fields, request.body, secret)
    return hmac.compare_digest(right.encode(), given.encode("utf-8", "replace"))
