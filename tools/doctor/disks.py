"""Gathers facts of the directories of a configuration. Nothing stays behind: what is written has no name."""

from __future__ import annotations

import os
import stat
import statistics
import tempfile
import time
from pathlib import Path

from holdfast.common.agreement import secret_digest
from holdfast.common.config.config import Config
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.security.server import read_other_secret
from holdfast.common.system.files import read_small
from holdfast.tools.doctor.core.facts import DirectoryFact, SecretFact

_MOUNTS, _FSTAB = Path("/proc/self/mounts"), Path("/etc/fstab")
_ROUNDS, _SECONDS_MAX = 20, 2.0
_BLOCK = bytes(4096)


def gather_directories(config: Config, fstab: Path = _FSTAB) -> list[DirectoryFact]:
    """Every directory that servers of this file keep something in. Raises ConfigError for two that are one."""
    found = []
    if config.master.directory:
        found.append(_gather("master.directory", config.master.directory, "", 0, fstab))
    for number, each in enumerate(config.worker.directories):
        setting = f"worker.directories[{number}]"
        found.append(_gather(setting, each.path, each.tier, int(each.capacity), fstab))
    return found


def _gather(setting: str, path: str, tier: str, capacity: int, fstab: Path) -> DirectoryFact:
    from holdfast.worker.storage.env.directory_paths import file_system

    there = _nearest(path)
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        mounts = ""  # not Linux
    real = os.path.realpath(there)
    space = os.statvfs(there)
    unusable = _unusable(path, there)
    cluster_id, worker_name, damaged = _identity(path) if tier else ("", "", "")
    status = os.stat(there)
    return DirectoryFact(
        setting=setting,
        path=path,
        tier=tier,
        capacity_bytes=capacity,
        unusable=unusable,
        open_to_all=there == path and bool(status.st_mode & stat.S_IWOTH),
        device=status.st_dev,
        file_system=file_system(mounts, real)[1],
        not_mounted=_not_mounted(real if there == path else path, mounts, fstab),
        size_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        inodes=space.f_files,
        inodes_free=space.f_favail,
        sync_us=None if unusable else _sync_us(there),
        cluster_id=cluster_id,
        worker_name=worker_name,
        damaged=damaged,
    )


def _nearest(path: str) -> str:
    """The directory, or the part of its path that is there: a server makes the rest."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _unusable(path: str, there: str) -> str:
    """Why the directory cannot be made or written, in the worker's words."""
    from holdfast.worker.storage.env.directory_paths import unusable

    try:
        if there != path and os.path.lexists(os.path.join(there, os.path.relpath(path, there).split("/")[0])):
            raise NotADirectoryError(20, "there is something else")
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(_BLOCK)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError as error:
        return str(unusable(0, path, error)).removeprefix(f"worker.directories[0].path {path} ")
    return ""


def _sync_us(folder: str) -> float | None:
    """Median time of writing 4 KiB in place and syncing them, in microseconds."""
    times, end = [], time.monotonic() + _SECONDS_MAX
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for number in range(_ROUNDS):
                begun = time.perf_counter()
                os.pwrite(file.fileno(), _BLOCK, number * len(_BLOCK))
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begun)
                if time.monotonic() > end:
                    break
    except OSError:
        return None
    return statistics.median(times) * 1e6


def _identity(path: str) -> tuple[str, str, str]:
    """Recorded cluster and worker of a storage directory, and why it cannot be read."""
    from holdfast.worker.storage.identity import Identity
    from holdfast.worker.storage.names import IDENTITY

    try:
        found = Identity.decode(Path(path, IDENTITY).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return "", "", ""
    except (OSError, CorruptError, ConfigError) as error:
        return "", "", str(error)
    return found.cluster_id, found.worker_name, ""


def _not_mounted(path: str, mounts: str, fstab: Path) -> str:
    """The longest mount point of fstab that holds `path`, if nothing is mounted there now."""
    try:
        wanted = [line.split() for line in fstab.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return ""
    mounted = {line.split()[1] for line in mounts.splitlines() if len(line.split()) > 1}
    points = [words[1] for words in wanted if len(words) > 2 and not words[0].startswith("#") and words[1] != "/"]
    above = [point for point in points if f"{path}/".startswith(f"{point.rstrip('/')}/")]
    longest = max(above, key=len, default="")
    return longest if longest and longest not in mounted else ""


def shared_paths(config: Config) -> str:
    """What the worker would say of two directories that are one, or of one within another; "" if all is well."""
    from holdfast.common.dfs.urls import StoreKind, parse_url
    from holdfast.worker.storage.env.directory_paths import refuse_shared

    dfs = parse_url(config.dfs.url) if config.dfs.url else None
    try:
        refuse_shared(
            [each.path for each in config.worker.directories],
            dfs.path if dfs is not None and dfs.kind is StoreKind.LOCAL else "",
        )
    except ConfigError as error:
        return str(error)
    return ""


def gather_secret(config: Config) -> SecretFact | None:
    """The masters' secret, if one is set; of its bytes only what may be shown is kept."""
    path = config.cluster.secret_file
    if not path:
        return None
    try:
        mode = os.stat(path).st_mode
        secret = read_small(path, "cluster.secret_file").strip()
    except OSError as error:
        return SecretFact(path=path, error=error.strerror or str(error))
    except ConfigError as error:
        return SecretFact(path=path, error=getattr(error.__cause__, "strerror", None) or str(error))
    return SecretFact(
        path=path,
        length=len(secret),
        open_to_others=bool(mode & (stat.S_IWGRP | stat.S_IRWXO)),
        digest=secret_digest(secret, config.cluster.id),
        other_digest=_other_digest(config),
    )


def _other_digest(config: Config) -> str:
    try:
        other = read_other_secret(config)
    except ConfigError:
        return ""  # found with the settings, at the start of a server with them
    return secret_digest(other, config.cluster.id) if other else ""
