"""Tokens in HTTP: `Authorization: Bearer TOKEN` of programs, and Basic with the token as password of browsers."""

from __future__ import annotations

import base64
import binascii

from holdfast.common.errors import UnauthenticatedError

#: WWW-Authenticate of an answer that refuses: browsers then ask for a name, which does not matter, and a password.
CHALLENGE = 'Basic realm="Holdfast: the password is a token"'


def token_of(authorization: str) -> str:
    """Return the token in the value of an Authorization header, "" if it is missing. Raises UnauthenticatedError."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        name_and_password = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise UnauthenticatedError("the Authorization header is damaged") from None
    return name_and_password.partition(":")[2]
