"""Gathers facts of certificates, keys and tokens by using them: TLS in memory, client and server in one."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.common.config.config import Config
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE, Credentials, calling_context
from holdfast.common.security.expiry import meet
from holdfast.common.security.tokens import times_of
from holdfast.common.system.files import read_small_text
from holdfast.tools.doctor.core.facts import CertificateFact, TokenFact


def gather_certificate(config: Config, names: Sequence[str]) -> CertificateFact | None:
    """What becomes of this server's certificate where others reach it by these names; None without security."""
    section = config.security
    if not section.enabled:
        return None
    open_files = tuple(path for path in (section.key_file, config.cluster.secret_file) if path and open_to_others(path))
    try:
        for path, what in ((section.certificate, "certificate"), (section.key_file, "key_file")):
            read_small_text(path, f"security.{what}")
        ca_pem = read_small_text(section.ca, "security.ca")
        calling_context(ca_pem)
    except ConfigError as error:
        return CertificateFact(open_files=open_files, error=str(error))
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        listening.load_cert_chain(section.certificate, section.key_file)
    except (ssl.SSLError, OSError) as error:
        return CertificateFact(open_files=open_files, no_pair=str(error))
    met = meet(listening, ca_pem, names)
    return CertificateFact(
        open_files=open_files, refused=met.refused, names_missing=met.names_missing, ends_s=float(met.ends_s)
    )


def open_to_others(path: str) -> bool:
    """Whether anybody but its owner may read or write the file."""
    try:
        return bool(os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False


def gather_token(environ: Mapping[str, str] = os.environ) -> TokenFact | None:
    """What this client would show; None where nothing is set."""
    path = environ.get(TOKEN_VARIABLE, "")
    if not path and not environ.get(CA_VARIABLE, ""):
        return None
    try:
        found = Credentials.from_environment(environ)
        ends_s = times_of(found.token)[1] if found is not None else 0
    except HoldfastError as error:
        return TokenFact(path=path, error=str(error))
    return TokenFact(path=path, ends_s=ends_s, open_to_others=open_to_others(path) and Path(path).is_file())
