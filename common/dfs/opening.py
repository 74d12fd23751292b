"""From `[dfs]` to a pyarrow file system: the only place that connects to each kind of store.

pyarrow and hdfs-native are imported here when a store is opened, and never otherwise: servers without a DFS tier do not
need them. Nothing here talks to the store; that it is there is found out by `DfsStore.claim` and `look`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.common.config.config import DfsSection
from holdfast.common.dfs.folder import LocalFolder
from holdfast.common.dfs.urls import DfsUrl, StoreKind, parse_url
from holdfast.common.errors import ConfigError

#: What to do where a library is missing; as README says of the other extras.
INSTALL = "pip install '.[dfs]' in a clone of Holdfast, on workers and masters"
#: Tries that the AWS library makes of each request by itself, at throttling and lost connections.
_AWS_TRIES = 3


def open_filesystem(section: DfsSection) -> tuple[DfsUrl, Any]:
    """Return the parsed URL and the pyarrow FileSystem of a store. Raises ConfigError."""
    url = parse_url(section.url)
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ConfigError(f"[dfs] url needs pyarrow: {INSTALL} ({error})") from error
    if url.kind is StoreKind.LOCAL:
        return url, LocalFolder(fs.LocalFileSystem(), url.base)
    if url.kind is StoreKind.HDFS:
        return url, _hdfs(url, section)
    return url, _s3(fs, section)


def _s3(fs: Any, section: DfsSection) -> Any:
    if not hasattr(fs, "S3FileSystem"):
        raise ConfigError(f"this pyarrow was built without S3: {INSTALL}, which installs one that has it")
    options: dict[str, Any] = {
        "connect_timeout": section.connect_timeout.seconds,
        # Of silence. A share, so that the library has tried again before our own deadline for all of it.
        "request_timeout": section.call_timeout.seconds / _AWS_TRIES,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_AWS_TRIES),
        # In the background a whole file may gather in memory, since nothing slows its reader down.
        "background_writes": False,
        # A small file is one request instead of three.
        "allow_delayed_open": True,
    }
    if section.access_key:
        options |= {"access_key": section.access_key, "secret_key": _secret(section.secret_key_file)}
    endpoint = section.endpoint or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, address = endpoint.rstrip("/").partition("://")
        options |= {"scheme": scheme, "endpoint_override": address}
    region = section.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    if region or endpoint:
        # Servers other than Amazon's require some region and accept any; without one the library looks for it.
        options["region"] = region or "us-east-1"
    try:
        return fs.S3FileSystem(**options)
    except (OSError, ValueError) as error:
        raise ConfigError(f"[dfs] cannot open S3: {error}") from error


def _environment(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")


def _hdfs(url: DfsUrl, section: DfsSection) -> Any:
    try:
        from holdfast.common.dfs.hdfs import hdfs_filesystem
    except ImportError as error:
        raise ConfigError(f"[dfs] url needs hdfs-native: {INSTALL} ({error})") from error
    return hdfs_filesystem(url.host, section.call_timeout.ms)


def _secret(path: str) -> str:
    try:
        secret = Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read dfs.secret_key_file {path}: {error}") from error
    if not secret:
        raise ConfigError(f"dfs.secret_key_file {path} is empty")
    return secret
