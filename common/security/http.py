"""Tokens in HTTP: `Authorization: Bearer TOKEN` of programs, and Basic with the token as password of browsers."""

from __future__ import annotations

import base64
import binascii

from aiohttp import web

from holdfast.common.errors import UnauthenticatedError
from holdfast.common.net.http_server import KNOWN
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import Bearer

#: WWW-Authenticate of an answer that refuses: browsers then ask for a name, which does not matter, and a password.
CHALLENGE = 'Basic realm="Holdfast: the password is a token"'


def identify(security: ServerSecurity | None, request: web.BaseRequest) -> Bearer | None:
    """Return who makes a request, which is known from then on; None without security. Raises UnauthenticatedError,
    TokenExpiredError."""
    identity = None if security is None else security.identify(token_of(request.headers.get("Authorization", "")))
    request[KNOWN] = True
    return identity


def token_of(authorization: str) -> str:
    """Return the token in the value of an Authorization header, "" if there is none. Raises UnauthenticatedError."""
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
