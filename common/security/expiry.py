"""When a server's certificate ends, found by a handshake with itself in memory: no library but ssl is needed for it."""

from __future__ import annotations

import ssl

#: A handshake of TLS 1.3 takes three turns of each side.
_TURNS = 8


def certificate_ends_s(listening: ssl.SSLContext, ca_pem: str) -> int:
    """Return when the certificate of a listening context ends, in seconds since 1970; 0 if its CA does not vouch for it
    now, as where it has ended."""
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False  # it is asked when it ends, not whose it is
    calling.load_verify_locations(cadata=ca_pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server)
    server = listening.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_TURNS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return 0
        found = client.getpeercert() if client.version() else None
        if found:
            return int(ssl.cert_time_to_seconds(str(found["notAfter"])))
    return 0
