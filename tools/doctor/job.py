"""Gathers facts of what a job would show: the two files that Spark's settings name, read as this user."""

from __future__ import annotations

import os
import pwd
import ssl
import stat
from collections.abc import Mapping
from typing import Any

from holdfast.common.errors import ConfigError
from holdfast.common.security.credentials import Credentials, calling_context
from holdfast.common.security.tokens import TokenKind, bearer_of, times_of
from holdfast.common.system.files import read_small_text
from holdfast.tools.doctor.core.facts import JobFact
from holdfast.tools.doctor.core.spark import PREFIX


def gather_job(settings: Mapping[str, str]) -> tuple[JobFact | None, Credentials | None]:
    """What the files are here, and what a job shows that has them; None without."""
    ca, token = settings.get(f"{PREFIX}security.ca", ""), settings.get(f"{PREFIX}security.tokenFile", "")
    if not ca and not token:
        return None, None
    ca_pem, ca_found = _ca(ca)
    text, token_found = _token(token)
    fact = JobFact(ca=ca, token=token, **ca_found, **token_found)
    return fact, Credentials(ca_pem, text) if ca_pem and text else None


def _ca(path: str) -> tuple[str, dict[str, Any]]:
    if not path:
        return "", {}
    try:
        ca_pem = read_small_text(path, "the CA")
        context = calling_context(ca_pem)
    except ConfigError as error:
        return "", {"ca_error": _reason(path, error)}
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs()]
    return ca_pem, {"ca_ends_s": float(max(ends, default=0))}


def _token(path: str) -> tuple[str, dict[str, Any]]:
    if not path:
        return "", {}
    try:
        text = read_small_text(path, "the token").strip()
    except ConfigError as error:
        return "", {"token_error": _reason(path, error)}
    kind = bearer_of(text)[0]
    if kind not in list(TokenKind):
        return "", {"token_error": f"{path} holds no token"}
    open_to_others = bool(os.stat(path).st_mode & stat.S_IRWXO)
    return text, {
        "kind": TokenKind(kind).name.lower(),
        "ends_s": float(times_of(text)[1]),
        "open_to_others": open_to_others,
    }


def _reason(path: str, error: ConfigError) -> str:
    """In words that say at once whether the file or a permission is missing, and for whom."""
    if isinstance(error.__cause__, FileNotFoundError):
        return f"there is no file {path}"
    if isinstance(error.__cause__, PermissionError):
        return f"{_user()} may not read {path}, or not enter a folder above it (permission denied)"
    return f"{path}: {error}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
