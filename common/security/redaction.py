"""Takes secrets out of what leaves a host for other people to read: the support bundle.

Rules: removed are, in this order: values that the settings mark as secret and what is in the files that they name,
wherever it occurs, also escaped or encoded; what has the form of a secret: tokens, private keys, credentials in URLs;
and values behind a name such as `password`. Every removal is counted by its cause. Too much is removed rather than too
little.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from holdfast.common.config.settings import MarkedKey
from holdfast.common.errors import ConfigError
from holdfast.common.security.credentials import TOKEN_VARIABLE
from holdfast.common.security.tokens import PREFIX
from holdfast.common.system.files import read_small

REMOVED = "(removed)"
#: Shorter ones would take half of every text along.
_CHARS_MIN = 4
#: From here on also within words.
_CHARS_WITHIN = 8
#: A line of a private key; its last one may be shorter.
_LINE_CHARS = 16
#: Variables that hold secrets themselves: the usual AWS credentials.
_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

_NAMES = (
    "password|passwd|passphrase|secret|secret[-_.]?key|access[-_.]?key|access[-_.]?key[-_.]?id|token|credential"
    "|signature|sig"
)
_SECRET_NAME = re.compile(rf"(?:{_NAMES})$", re.IGNORECASE)
#: By form: (cause, pattern); the first group stays.
_FORMS = (
    (
        "a private key",
        re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    ("a token", re.compile(rf"()\b{re.escape(PREFIX)}[A-Za-z0-9_-]+")),
    ("credentials in a URL", re.compile(r"(://)[^\s\"'<>]*(?=@)")),
    ("an Authorization header", re.compile(r"(authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?)[^\r\n\"']+", re.IGNORECASE)),
    ("a bearer token", re.compile(r"(\bbearer\s{1,4})[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)),
    ("an access key", re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
)
_NAMED = re.compile(
    rf"((?:{_NAMES})[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"']?)(?!\s|\(removed\))[^\s\"',;&<>{{}}]+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret, and where it is from."""

    cause: str
    text: str = field(repr=False)


def known_secrets(marked: Iterable[MarkedKey], environ: Mapping[str, str] = os.environ) -> list[KnownSecret]:
    """The secrets behind marked settings and of the environment. A file that cannot be read gives none: then nothing
    of this process can have it either."""
    found = []
    for each in marked:
        if each.part == "value":
            found.append(KnownSecret(each.key, each.text))
        else:
            found += secrets_in_file(f"the file of {each.key}", each.text)
    if TOKEN_VARIABLE in environ:
        found += secrets_in_file(f"the file of {TOKEN_VARIABLE}", environ[TOKEN_VARIABLE])
    return found + [KnownSecret(name, environ[name]) for name in _AWS if environ.get(name)]


def secrets_in_file(cause: str, path: str) -> list[KnownSecret]:
    """What is in a file, if it can be read: the whole, and each line, since a log may have but one."""
    try:
        text = read_small(path, cause).decode("utf-8", "replace").strip()
    except ConfigError:
        return []
    lines = [line.strip() for line in text.splitlines()]
    parts = [line for line in lines if len(line) >= _LINE_CHARS and not line.startswith("-----")]
    return [KnownSecret(cause, each) for each in (text, *parts)]


class Redactor:
    """Removes secrets from texts and from JSON."""

    def __init__(self, secrets: Iterable[KnownSecret]) -> None:
        self._causes: dict[str, str] = {}
        for each in secrets:
            if len(each.text) >= _CHARS_MIN:
                for form in _forms_of(each.text):
                    self._causes.setdefault(form, each.cause)
        # The longest first: of a secret that begins with another one nothing is left over.
        forms = sorted(self._causes, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern, forms))) if forms else None

    def text(self, text: str, removed: Counter[str]) -> str:
        """The text without secrets; `removed` counts them by cause."""

        def known(found: re.Match[str]) -> str:
            removed[self._causes[found[0]]] += 1
            return REMOVED

        if self._known is not None:
            text = self._known.sub(known, text)
        for cause, pattern in _FORMS:
            text = _without(text, pattern, cause, removed)
        return _without(text, _NAMED, "a value behind a secret's name", removed)

    def document(self, value: object, removed: Counter[str]) -> object:
        """The same of JSON; texts behind the name of a secret go as well."""
        if isinstance(value, str):
            return self.text(value, removed)
        if isinstance(value, list):
            return [self.document(item, removed) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key), removed): self._entry(str(key), item, removed) for key, item in value.items()}
        if not isinstance(value, bool) and (cause := self._causes.get(str(value))):
            removed[cause] += 1
            return REMOVED
        return value

    def _entry(self, key: str, item: object, removed: Counter[str]) -> object:
        if isinstance(item, str) and item and item != REMOVED and _SECRET_NAME.search(key):
            removed["a value behind a secret's name"] += 1
            return REMOVED
        return self.document(item, removed)


def _without(text: str, pattern: re.Pattern[str], cause: str, removed: Counter[str]) -> str:
    text, count = pattern.subn(rf"\1{REMOVED}", text)
    if count:
        removed[cause] += count
    return text


def _forms_of(secret: str) -> set[str]:
    """How texts carry a secret: as it is, escaped, in a URL, and in Base64."""
    coded = base64.b64encode(secret.encode()).decode()
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {secret, *escaped, quote(secret), quote(secret, safe=""), coded, coded.rstrip("=")}


def _pattern(form: str) -> str:
    text = re.escape(form)
    return text if len(form) >= _CHARS_WITHIN else rf"(?<![A-Za-z0-9]){text}(?![A-Za-z0-9])"
