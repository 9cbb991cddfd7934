"""Signatures of requests: HMAC-SHA1 over the values of all ext fields in the order of their keys, then the body.

Code, opaque and time are not signed; the protocol is as it is.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from cometmq.protocol.command import Buffer, RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signature(
    ext_fields: Mapping[str, str], body: Buffer, secret_key: str, *, leave_out: tuple[str, ...] = ()
) -> str:
    """The signature of ext fields and body; the field Signature itself never counts."""
    mac = hmac.new(secret_key.encode(), digestmod="sha1")
    for name in sorted(ext_fields, key=_utf16):
        if name != SIGNATURE and name not in leave_out:
            mac.update(ext_fields[name].encode("utf-8", "replace"))
    mac.update(body)
    return base64.b64encode(mac.digest()).decode("ascii")


def _utf16(name: str) -> bytes:
    """Java compares strings by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def sign(
    command: RemotingCommand, access_key: str, secret_key: str, security_token: str | None = None
) -> None:
    """Add the fields of the account to a request. To be called last, for all fields count.

    ``_UNIQUE_KEY_QUERY`` is left out of the signature, because a 4.9 broker leaves it out when it checks.
    """
    fields = command.ext_fields = {} if command.ext_fields is None else command.ext_fields
    fields[ACCESS_KEY] = access_key
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = signature(fields, command.body, secret_key, leave_out=(UNIQUE_KEY_QUERY,))


def is_signed(command: RemotingCommand, secret_key: str) -> bool:
    """Check the signature of a request.

    Java clients sign ``_UNIQUE_KEY_QUERY``, Java brokers do not count it, so both ways are right.
    """
    fields = command.ext_fields or {}
    given = fields.get(SIGNATURE, "").encode()
    plain = signature(fields, command.body, secret_key).encode()
    if hmac.compare_digest(plain, given):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    without = signature(fields, command.body, secret_key, leave_out=(UNIQUE_KEY_QUERY,))
    return hmac.compare_digest(without.encode(), given)
