"""What a server of a secured cluster has: its certificate, the cluster's secret, and a token of its own.

Rules: made once at the start, from files; everything wrong with them is a ConfigError that names the file. Masters and
workers have the same secret, so each makes its own token, good for minutes. It opens everything, so it is shown only at
addresses that servers vouch for; elsewhere one is shown that is good at that address alone. Called by the mains of
master and worker.
"""

from __future__ import annotations

import ssl
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.common.config.config import Config
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.security.credentials import TLS_LEAST, CredentialsProvider, calling_context
from holdfast.common.security.expiry import meet
from holdfast.common.security.tokens import SECRET_BYTES_MIN, Bearer, Keeper, TokenKind, must_be_at, subject_only_at
from holdfast.common.system.files import read_small, read_small_text
from holdfast.common.system.log import log_event

#: Life of a server's own token; a new one is made when half of it is over.
_OWN_LIFE_S = 600
#: Of one that a single server takes. Connections end with their token, and those between workers carry pushes always.
_ONLY_FOR_LIFE_S = 86_400
#: A certificate that expires sooner is logged at every start.
_SOON_S = 30 * 86_400


class ServerSecurity:
    """Verifies what others show, and is itself what this server shows to others (a CredentialsProvider)."""

    def __init__(self, config: Config, name: str, hosts: Sequence[str] | None = None) -> None:
        """`name` is the server's; `hosts` are by what others reach it, None where it listens nowhere. Raises
        ConfigError, also for a certificate that others would not believe."""
        section = config.security
        shared = config.cluster
        other = read_other_secret(config, private=True)
        self.keeper = Keeper(read_secret(shared.secret_file, private=True), shared.id, other)
        self.token_life_s = int(section.token_life.seconds)
        self.ca_pem = read_small_text(section.ca, "security.ca")
        self.context = calling_context(self.ca_pem)
        self.certificate_pem = read_small_text(section.certificate, "security.certificate")
        check_private(section.key_file, "security.key_file")
        self.key_pem = read_small_text(section.key_file, "security.key_file")
        #: for connections from others
        self.listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listening.minimum_version = TLS_LEAST
        self.listening.num_tickets = 0  # clients keep their connections and resume none: a third of a handshake's cost
        try:
            self.listening.load_cert_chain(section.certificate, section.key_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"security.certificate {section.certificate} and security.key_file {section.key_file} are no pair: "
                f"{error}"
            ) from None
        #: when the certificate ends, in seconds since 1970
        self.certificate_ends_s = meet(self.listening, self.ca_pem).ends_s
        self._certificate = section.certificate
        if hosts is not None:
            self._check_believed(hosts)
        self._name = name.encode()
        self._token, self._renew_at = "", 0.0

    @classmethod
    def of(cls, config: Config, name: str, hosts: Sequence[str] | None = None) -> ServerSecurity | None:
        """Return what `config` asks for; None without security. Raises ConfigError."""
        return cls(config, name, hosts) if config.security.enabled else None

    def _check_believed(self, hosts: Sequence[str]) -> None:
        """Raise ConfigError if no client would accept this server's certificate: better no server than that."""
        met = meet(self.listening, self.ca_pem, hosts)
        if met.refused:
            raise ConfigError(
                f"security.certificate {self._certificate} is refused by all clients with this security.ca: "
                f"{met.refused}. Put one in its place that this CA signed and that is valid today"
            )
        if met.names_missing:
            names = ", ".join(map(repr, met.names_missing))
            raise ConfigError(
                f"security.certificate {self._certificate} does not name {names}, by which others reach this server, "
                "so they would not believe it: get one that does, or correct the address"
            )

    def warn_of_end(self, now_s: float) -> None:
        """Log it if the certificate expires soon."""
        left_s = self.certificate_ends_s - now_s
        if self.certificate_ends_s and left_s <= _SOON_S:
            days = round(max(left_s, 0) / 86_400, 1)
            log_event(LogEvent.CERTIFICATE_EXPIRING, certificate=self._certificate, days=days)

    @property
    def token(self) -> str:
        """This server's own token."""
        now = time.time()
        if now >= self._renew_at:
            self._token = self.keeper.mint(TokenKind.SERVER, self._name, int(now), _OWN_LIFE_S)
            self._renew_at = now + _OWN_LIFE_S / 2
        return self._token

    def only_for(self, address: str) -> CredentialsProvider:
        """Credentials for an address that is not verified: they are worth nothing elsewhere."""
        subject = subject_only_at(self._name, address)
        token = self.keeper.mint(TokenKind.SERVER, subject, int(time.time()), _ONLY_FOR_LIFE_S)
        return _OnlyFor(token, self.ca_pem, self.context)

    def identify(self, token: str, address: str = "") -> Bearer:
        """Return the bearer of this token; `address` is where this server was reached, if it takes tokens only for
        that. Raises UnauthenticatedError, TokenExpiredError."""
        identity = self.keeper.verify(token, time.time())
        must_be_at(identity, address)
        return identity


@dataclass(frozen=True, slots=True)
class _OnlyFor:
    """A CredentialsProvider for one address."""

    token: str
    ca_pem: str
    context: ssl.SSLContext


def read_secret(path: str, *, private: bool = False, key: str = "cluster.secret_file") -> bytes:
    """Return the secret in the file that `key` names; `private`: refuse one that others may read. Raises
    ConfigError."""
    if private:
        check_private(path, key)
    secret = read_small(path, key).strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"{key} {path} holds {len(secret)} bytes; at least {SECRET_BYTES_MIN} are needed")
    return secret


def read_other_secret(config: Config, *, private: bool = False) -> bytes:
    """Return the secret that is accepted beside the cluster's, b"" without one. Raises ConfigError."""
    path = config.cluster.other_secret_file
    return read_secret(path, private=private, key="cluster.other_secret_file") if path else b""


def check_private(path: str, what: str) -> None:
    """Raise ConfigError for a file that anybody but its owner may read or write."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{what} {path} has mode {stat.S_IMODE(mode):04o}, so others may read it: chmod 600 {path}")
