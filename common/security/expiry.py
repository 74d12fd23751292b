"""What becomes of a server's certificate where clients meet it, found by handshakes in memory: no library but ssl is
needed for it. Called by servers as they start, by the local cluster and by the doctor."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.common.security.credentials import calling_context

#: A handshake of TLS 1.3 takes three turns of each side.
_TURNS = 8


@dataclass(frozen=True, slots=True)
class Met:
    """How clients with a certain CA take a server's certificate."""

    #: when it ends, in seconds since 1970; 0 if it is refused
    ends_s: int = 0
    #: why clients refuse it whatever the server is called, as where it has ended; "" if they do not
    refused: str = ""
    #: names by which others would reach the server, and which it does not have
    names_missing: tuple[str, ...] = ()


def meet(listening: ssl.SSLContext, ca_pem: str, names: Sequence[str] = ()) -> Met:
    """Meet a listening context as clients do that reach it by these names. Raises ConfigError for what is no CA."""
    calling = calling_context(ca_pem)
    calling.check_hostname = False
    try:
        ends_s = _shake(listening, calling, None)
    except ssl.SSLCertVerificationError as error:
        return Met(refused=error.verify_message)
    except ssl.SSLError as error:
        return Met(refused=str(error))
    calling.check_hostname = True
    return Met(ends_s, "", tuple(name for name in dict.fromkeys(names) if not _believed(listening, calling, name)))


def _believed(listening: ssl.SSLContext, calling: ssl.SSLContext, name: str) -> bool:
    try:
        _shake(listening, calling, name)
    except (ssl.SSLError, ValueError):  # ValueError: an impossible name, such as ""
        return False
    return True


def _shake(listening: ssl.SSLContext, calling: ssl.SSLContext, name: str | None) -> int:
    """Return when the certificate ends. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server, server_hostname=name)
    server = listening.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_TURNS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        found = client.getpeercert() if client.version() else None
        if found:
            return int(ssl.cert_time_to_seconds(str(found["notAfter"])))
    raise ssl.SSLError("the handshake did not complete in time")
