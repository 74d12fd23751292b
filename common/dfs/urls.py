"""What `[dfs] url` says: which kind of store, and where in it. Pure; config.py checks with it, opening.py acts on it.

    /mnt/dfs, file:///mnt/dfs      a folder that every worker and master has mounted
    s3://bucket/prefix             an S3 bucket, or a folder of one; the bucket has to exist
    hdfs://host:port/folder        HDFS; a name service of HADOOP_CONF_DIR instead of host:port

Secrets are never in a URL: URLs are shown in errors, logs and status pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, unique

from holdfast.common.config.settings import shown
from holdfast.common.errors import ConfigError


@unique
class StoreKind(Enum):
    """The kinds of stores; the value is the scheme of the URL."""

    LOCAL = "file"
    S3 = "s3"
    HDFS = "hdfs"

    @property
    def called(self) -> str:
        """What people call it."""
        return "a folder" if self is StoreKind.LOCAL else self.name


@dataclass(frozen=True, slots=True)
class DfsUrl:
    """A parsed URL. `host` is the bucket of S3, the name node of HDFS; `path` has no slash at its end."""

    kind: StoreKind
    host: str
    path: str

    @property
    def base(self) -> str:
        """The path of the store's folder as its pyarrow file system wants it."""
        return f"{self.host}{self.path}" if self.kind is StoreKind.S3 else self.path

    def __str__(self) -> str:
        return f"{self.kind.value}://{self.host}{self.path}"


_WANTED = "must be /path, file:///path, s3://bucket/prefix or hdfs://host:port/path"
_URL = re.compile(r"([a-z0-9]+)://([^/?#]*)((?:/[^?#]*)?)")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,62}")
_HARMLESS = re.compile(r"(?:[A-Za-z0-9]+://|(?:s3a?|hdfs|file):/?)?[^@?#:]*(:\d{1,5})?(/[^@?#:]*)?")
_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d{1,5})?")


def parse_url(text: str) -> DfsUrl:
    """Return what the URL says. Raises ConfigError, which never repeats what may be a secret."""
    given = text
    if text.startswith("/"):
        text = "file://" + text
    found = _URL.fullmatch(text)
    problem = _problem(found)
    if found is None or problem:
        raise ConfigError(f"url {problem}, not {shown(given)}" if harmless(given) else f"url {problem}")
    return DfsUrl(StoreKind(found[1]), found[2], found[3].rstrip("/"))


def harmless(text: str) -> bool:
    """Whether a refused URL may be shown: user:password is before an @ that may be missing, and tokens
    are after a ? or a #."""
    return _HARMLESS.fullmatch(text) is not None


def _problem(found: re.Match[str] | None) -> str:
    """What the parts of a URL should be; "" if all is well."""
    if found is None or found[1] not in {kind.value for kind in StoreKind}:
        return _WANTED
    kind, host, path = StoreKind(found[1]), found[2], found[3].rstrip("/")
    if "@" in host:
        return "must not hold credentials: use the environment, or access_key and secret_key_file"
    if "//" in path or {".", ".."} & set(path.split("/")):
        return "must not have empty parts, . or .. in its path"
    if kind is StoreKind.LOCAL and (host or not path):
        return "of a folder must be an absolute path, such as file:///mnt/dfs"
    if kind is StoreKind.S3 and not _BUCKET.fullmatch(host):
        return (
            "of S3 needs the name of a bucket, such as s3://bucket/prefix: 2 to 63 lower-case letters, digits, dots, "
            "hyphens or underscores, a letter or digit first"
        )
    if kind is StoreKind.HDFS and not (_HOST.fullmatch(host) and path):
        return "of HDFS must have a name node and a folder, such as hdfs://host:8020/holdfast"
    return ""
