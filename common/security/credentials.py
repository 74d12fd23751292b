"""The credentials of a process: its token, and the CA that it trusts. No policy.

Rules: `CredentialsProvider` is what every client part takes (control.py, transports.py, frames/client.py, direct.py);
None means a cluster without security. Contexts are made once and never pickled; tokens are read anew for each call
or connection, since they are renewed. Called by everything that connects.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

from holdfast.common.errors import ConfigError
from holdfast.common.security.tokens import PREFIX, bearer_of, times_of
from holdfast.common.system.files import read_small_text

#: Variables by which clients learn what to show; both or none.
CA_VARIABLE = "HOLDFAST_CA"
TOKEN_VARIABLE = "HOLDFAST_TOKEN_FILE"
#: The oldest version of TLS that is spoken: all clients are ours, or younger than it.
TLS_LEAST = ssl.TLSVersion.TLSv1_3


class CredentialsProvider(Protocol):
    """Token and CA of a process."""

    @property
    def token(self) -> str:
        """The current token."""

    @property
    def ca_pem(self) -> str:
        """Certificates of the CA, for those that make contexts of their own, such as gRPC."""

    @property
    def context(self) -> ssl.SSLContext:
        """For connections to servers: their certificates are verified, and their names."""


class Credentials:
    """A token and the CA of a cluster. Thread-safe; never pickled."""

    def __init__(self, ca_pem: str, token: str) -> None:
        if not re.fullmatch(r"[!-~]*", token):
            raise ConfigError("the token is invalid: it has characters that no token has")
        self.ca_pem = ca_pem
        self._files: tuple[str | Path, str | Path] | None = None
        self._context: ssl.SSLContext | None = None
        self._token = token
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        """Without the token."""
        return "Credentials(…)"

    def __reduce__(self) -> NoReturn:
        """Refuse."""
        raise TypeError("credentials are not pickled: they have a token. A shuffle may be, with its token sealed")

    @property
    def token(self) -> str:
        """The current token."""
        return self._token

    @property
    def bearer(self) -> tuple[int, bytes]:
        """Kind and subject of the token, the same over renewals."""
        return bearer_of(self._token)

    def half_life_left_s(self, now_s: float) -> float:
        """Seconds until half of the token's life has passed; negative afterwards."""
        issued, expires = times_of(self._token)
        return (issued + expires) / 2 - now_s

    def half_over(self, now_s: float) -> bool:
        """Whether more than half of the token's life has passed."""
        return self.half_life_left_s(now_s) < 0

    def renew(self, token: str) -> None:
        """Use this token from now on, unless it is empty or expires before the current one."""
        with self._guard:
            if token and times_of(token)[1] >= times_of(self._token)[1]:
                self._token = token

    def with_token(self, token: str) -> Credentials:
        """Return the same CA with another token."""
        return Credentials(self.ca_pem, token)

    @property
    def context(self) -> ssl.SSLContext:
        """For connections to servers."""
        if self._context is None:
            self._context = calling_context(self.ca_pem)
        return self._context

    @classmethod
    def from_files(cls, ca: str | Path, token_file: str | Path) -> Credentials:
        """Read the CA and the token. Raises ConfigError."""
        check_path(token_file)
        ca_pem, token = read_small_text(ca, "the CA"), read_small_text(token_file, "the token").strip()
        if not bearer_of(token)[0]:
            raise ConfigError(f"{token_file} holds no token; `holdfast token` makes one")
        found = cls(ca_pem, token)
        calling_context(found.ca_pem)
        found._files = ca, token_file
        return found

    def read_again(self) -> Credentials:
        """Read the files again. Raises ConfigError."""
        return self if self._files is None else Credentials.from_files(*self._files)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Credentials | None:
        """Read the files that HOLDFAST_CA and HOLDFAST_TOKEN_FILE name; None without them. Raises ConfigError."""
        ca, token = environ.get(CA_VARIABLE, ""), environ.get(TOKEN_VARIABLE, "")
        if not ca and not token:
            return None
        if not ca or not token:
            missing = TOKEN_VARIABLE if ca else CA_VARIABLE
            raise ConfigError(f"{CA_VARIABLE} and {TOKEN_VARIABLE} go together: set {missing}, or neither")
        return cls.from_files(ca, token)


def check_path(token_file: str | Path) -> None:
    """Raise ConfigError for a token where the path of a file with one is wanted: paths are shown to many."""
    if str(token_file).startswith(PREFIX):
        raise ConfigError("where the path of a file with a token is wanted, a token itself was given")


def calling_context(ca_pem: str) -> ssl.SSLContext:
    """Return a context that verifies servers by this CA and by their names. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = TLS_LEAST
    try:
        context.load_verify_locations(cadata=ca_pem)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: what is not ASCII
        raise ConfigError(f"the CA is no certificate in PEM: {error}") from None
    return context
