"""Tokens: an identity and its expiry, signed with the cluster's secret alone. Pure: secrets and times are given.

A token is text that anybody may read and only a holder of the secret can make:

    hft1.<base64url, no padding, of: kind u8, issued u64, expires u64 (seconds since 1970), subject, MAC 32 bytes>

The subject of an application's token is its instance, and behind that of which user it is (`share_owner`), so that
workers know whose share it uses.

The MAC is HMAC-SHA256 over "holdfast token 1", the cluster's id and all before it, with a key derived from the secret
(RFC 5869 with one block), so a token serves in one cluster, and what masters prove to each other with the same secret
is of no use here. Nobody has to be asked to verify one: masters and workers have the secret. Called by masters,
workers and the CLI; clients carry tokens and only read when they end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum

from holdfast.common.errors import ConfigError, ForbiddenError, TokenExpiredError, UnauthenticatedError
from holdfast.common.ids import INSTANCE_BYTES
from holdfast.common.limits import NAME_BYTES_MAX

PREFIX = "hft1."
#: Fewer bytes of a secret can be guessed.
SECRET_BYTES_MIN = 16
_CONTEXT = b"holdfast token 1\0"
_HEAD = struct.Struct("<BQQ")
_MAC_BYTES = 32
#: The id of a user where shares are divided: that much of the SHA-256 of the name.
SHARE_OWNER_BYTES = 8
#: Stands for all whose tokens do not say whose they are.
NO_USER = bytes(SHARE_OWNER_BYTES - 1) + b"\1"
#: Longer texts are refused unread.
TOKEN_CHARS_MAX = 4 * (_HEAD.size + NAME_BYTES_MAX + _MAC_BYTES) // 3 + 16
#: Between a server's name and the address for which alone it made a token; in no name, since names are printable.
_ONLY_AT = b"\0"
#: Clocks of hosts may differ by so much.
SKEW_S = 60


class TokenKind(IntEnum):
    """What a token lets its bearer do; master/api/access.py and worker/core/access.py have the rules."""

    APPLICATION = 1  #: everything with the shuffles of one application; the subject is its instance and its user
    USER = 2  #: make applications of that user and attach to them; the subject is the user's name
    ADMIN = 3  #: see and change everything that people may; the subject is a name for the log
    VIEWER = 4  #: see what people may see, and change nothing
    SERVER = 5  #: a master or a worker; the subject is its name, and an address if only one server is to take it


#: Who may see what people may see.
SEES = (TokenKind.VIEWER, TokenKind.ADMIN, TokenKind.SERVER)


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a verified token says its bearer is."""

    kind: TokenKind
    #: of an application its instance
    subject: bytes
    expires_s: int
    #: of an application whose it is; b"" in tokens of builds that did not say so, which share as one user
    of_user: bytes = b""

    @property
    def vital(self) -> bool:
        """Whether it keeps the cluster alive, or operates it."""
        return self.kind in (TokenKind.SERVER, TokenKind.ADMIN)

    @property
    def share_owner(self) -> bytes:
        """Who all that the bearer takes is counted for: a user with every application, whether it has ended or not."""
        return share_owner(self.subject) if self.kind is not TokenKind.APPLICATION else self.of_user or NO_USER

    def __str__(self) -> str:
        """For the log; never the token itself."""
        name = self.subject.hex() if self.kind is TokenKind.APPLICATION else self.subject.decode("utf-8", "replace")
        return f"{self.kind.name.lower()} {name}".replace(_ONLY_AT.decode(), ", only for ")

    @property
    def only_at(self) -> str:
        """The address of the one server that takes this token; "" where all do."""
        return self.subject.partition(_ONLY_AT)[2].decode("utf-8", "replace") if self.kind is TokenKind.SERVER else ""


class Keeper:
    """Makes and verifies the tokens of one cluster."""

    def __init__(self, secret: bytes, cluster_id: str, other_secret: bytes = b"") -> None:
        """`other_secret`: tokens that were made with it are taken, too. Raises ConfigError for a secret that is too
        short."""
        self._key = _key_of(secret)
        self._taken = (self._key, _key_of(other_secret)) if other_secret else (self._key,)
        self._context = _CONTEXT + cluster_id.encode() + b"\0"

    def mint(self, kind: TokenKind, subject: bytes, now_s: int, life_s: int) -> str:
        """Make a token that is good for `life_s` seconds from now."""
        body = _HEAD.pack(kind, now_s, now_s + life_s) + subject
        return PREFIX + base64.urlsafe_b64encode(body + self._mac(self._key, body)).decode().rstrip("=")

    def verify(self, token: str, now_s: float) -> Bearer:
        """Return the bearer. Raises UnauthenticatedError, TokenExpiredError; neither repeats the token."""
        if not token:
            raise UnauthenticatedError("a token is needed here, and none was given")
        raw = _decode(token)
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if len(body) < _HEAD.size or not any(hmac.compare_digest(mac, self._mac(key, body)) for key in self._taken):
            raise UnauthenticatedError("the token was not made with the secret of this cluster")
        kind, issued, expires = _HEAD.unpack_from(body)
        if now_s >= expires:
            raise TokenExpiredError("the token has expired: get a new one")
        if issued > now_s + SKEW_S:
            raise UnauthenticatedError("the token is of the future: the clocks of two hosts differ")
        try:
            subject, of_user = _parted(kind, body[_HEAD.size :])
            return Bearer(TokenKind(kind), subject, expires, of_user)
        except ValueError:
            raise UnauthenticatedError("the token is of an unknown kind for this version") from None

    def _mac(self, key: bytes, body: bytes) -> bytes:
        return hmac.digest(key, self._context + body, hashlib.sha256)


def _key_of(secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"the cluster's secret has {len(secret)} bytes; at least {SECRET_BYTES_MIN} are needed")
    extracted = hmac.digest(b"holdfast tokens", secret, hashlib.sha256)
    return hmac.digest(extracted, b"sign\x01", hashlib.sha256)


def share_owner(user: bytes) -> bytes:
    """The id of a user, by name, where shares are divided."""
    return hashlib.sha256(user).digest()[:SHARE_OWNER_BYTES]


def _parted(kind: int, subject: bytes) -> tuple[bytes, bytes]:
    """Who a token is for, and of an application whose that is."""
    cut = INSTANCE_BYTES if kind == TokenKind.APPLICATION else len(subject)
    return subject[:cut], subject[cut:]


def bearer_of(token: str) -> tuple[int, bytes]:
    """Return kind and subject of a token without verifying it; (0, b"") for what is no token."""
    try:
        raw = _decode(token)
        kind = _HEAD.unpack_from(raw)[0]
        return kind, _parted(kind, raw[_HEAD.size : -_MAC_BYTES])[0]
    except (UnauthenticatedError, struct.error):
        return 0, b""


def times_of(token: str) -> tuple[int, int]:
    """Return when a token was issued and when it ends, in seconds since 1970, without verifying it; (0, 0) for what is
    no token."""
    try:
        _, issued, expires = _HEAD.unpack_from(_decode(token))
    except (UnauthenticatedError, struct.error):
        return 0, 0
    return issued, expires


def must_be(identity: Bearer | None, *kinds: TokenKind) -> None:
    """Raise ForbiddenError unless the bearer is of one of these kinds; None means a cluster without security."""
    if identity is not None and identity.kind not in kinds:
        allowed = " or ".join(kind.name.lower() for kind in kinds)
        raise ForbiddenError(f"this takes a token of kind {allowed}, not {identity.kind.name.lower()}")


def must_be_at(identity: Bearer, address: str) -> None:
    """Raise UnauthenticatedError for a token that was made for another server than the one at this address."""
    if identity.only_at not in ("", address):
        raise UnauthenticatedError("the token was made for another server")


def subject_only_at(name: bytes, address: str) -> bytes:
    """The subject of a server's token that only the server at `address` takes; a long name is cut."""
    only = address.encode()
    return name[: max(NAME_BYTES_MAX - len(only), 0)] + _ONLY_AT + only


def _decode(token: str) -> bytes:
    if not token.startswith(PREFIX) or len(token) > TOKEN_CHARS_MAX or not token.isascii():
        raise UnauthenticatedError(f"this is not a token: tokens start with {PREFIX}")
    text = token[len(PREFIX) :]
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raw = b""
    # The decoder takes "+" for "-", and passes over bits of the last character: a token has one spelling.
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise UnauthenticatedError("the token is damaged: it was cut or changed")
    return raw
