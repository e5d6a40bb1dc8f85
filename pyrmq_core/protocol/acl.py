"""ACL signatures: the header fields by which a request proves that its sender knows a secret key.

The signature covers the values of all header fields, without names or separators, in the order of the names, then the
body. It does not cover code, flag and opaque. Sources:
acl/common/AclClientRPCHook.java, AclUtils.java, AclSigner.java (5.3.3). Both of RocketMQ's ACL versions use it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
COPIED_BYTES: Final = 64 * 1024


def sign(
    ext: Mapping[str, str],
    body: bytes | memoryview,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    """Returns the header fields `ext` with `AccessKey`, `Signature` and, if given, `SecurityToken`.

    A field that is added or changed afterwards makes the signature invalid.
    """
    fields = {name: value for name, value in ext.items() if name != SIGNATURE}
    fields[ACCESS_KEY] = access_key
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = signature(fields, body, secret_key)
    return fields


def signature(ext: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Returns the value of `Signature` that a request with these header fields and this body has to carry.

    Compare it with `hmac.compare_digest`, which takes the same time for every wrong value.
    """
    names = [name for name in ext if name != SIGNATURE]
    if "".join(names).isascii():
        names.sort()
    else:  # Java compares strings by UTF-16 units
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    fields = "".join([ext[name] for name in names]).encode("utf-8", "replace")
    return base64.b64encode(_digest(secret_key.encode(), fields, body)).decode("ascii")


def _digest(key: bytes, fields: bytes, body: bytes | memoryview) -> bytes:
    if len(body) <= COPIED_BYTES:  # one digest of a joined copy costs half as much
        return hmac.digest(key, b"".join((fields, body)), "sha1")
    digest = hmac.new(key, fields, "sha1")
    digest.update(body)
    return digest.digest()
