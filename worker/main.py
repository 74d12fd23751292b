"""Starts one worker process: configuration, then the checks of its directories, then everything else.

Rules: what is imported before the checks run in their own processes delays every restart, so it is little; the rest
(server/process.py) is loaded while they run. Exit 0, or 2 for a configuration error. Called by __main__.py.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.config.config import Config, advertised, parse, place, require_worker
from holdfast.common.dfs.urls import StoreKind, parse_url
from holdfast.common.errors import ConfigError
from holdfast.common.security.server import ServerSecurity
from holdfast.common.system.descriptors import WorkerDescriptors, raise_descriptor_limit
from holdfast.common.system.files import read_small_text
from holdfast.common.system.modes import keep_private
from holdfast.worker.core.health import HealthLimits
from holdfast.worker.storage.prepare import prepare
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings

if TYPE_CHECKING:
    from holdfast.worker.storage.dfs.away import Away
    from holdfast.worker.storage.env.interfaces import Env


def main(arguments: list[str] | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT."""
    if not __debug__:
        sys.exit("Holdfast checks its invariants with assert: run it without python -O")
    parser = argparse.ArgumentParser(prog="python -m holdfast.worker", description="Run one Holdfast worker.")
    parser.add_argument("--config", required=True, type=Path, help="TOML file, see docs/operate/configuration.md")
    path: Path = parser.parse_args(arguments).config
    raise_descriptor_limit()
    keep_private()
    try:
        text = read_small_text(path, "the configuration")
        config = parse(text, environ=os.environ, source=str(path))
        require_worker(config)
        source = place(text, os.environ, str(path), "worker", "directories")
        pending = prepare(_store_settings(config, source))
        from holdfast.worker.server.process import run

        section = config.worker
        hosts = [advertised(section.bind, section.address, socket.gethostname())]
        run(config, pending, ServerSecurity.of(config, section.name, hosts))
    except (ConfigError, OSError) as error:
        sys.stderr.writelines(f"holdfast worker: {line}\n" for line in str(error).splitlines())
        sys.exit(2)


def _store_settings(config: Config, source: str) -> StoreSettings:
    """`source` is where worker.directories is written."""
    dfs = parse_url(config.dfs.url) if config.dfs.url else None
    directories = tuple(
        DirectorySettings(path=found.path, tier=found.tier, capacity_bytes=int(found.capacity))
        for found in config.worker.directories
    )
    checks = config.disk_check
    health = HealthLimits(
        probe_timeout_ns=checks.timeout.ns,
        errors_max=checks.errors,
        error_window_ns=checks.error_window.ns,
        probes_to_return=checks.good_probes,
    )
    return StoreSettings(
        cluster_id=config.cluster.id,
        worker_name=config.worker.name,
        directories=directories,
        health=health,
        average_ns=checks.average_window.ns,
        tiers=config.tiers,
        dfs_folder=dfs.path if dfs is not None and dfs.kind is StoreKind.LOCAL else "",
        source=source,
        open_files_max=WorkerDescriptors.here().kept,
        open_away=partial(_open_away, config) if config.dfs.url else None,
    )


def _open_away(config: Config, uid: bytes, env: Env) -> Away:
    from holdfast.common.dfs.store import DfsStore
    from holdfast.worker.storage.dfs.away import Away

    return Away(
        env,
        partial(DfsStore, config.dfs, config.cluster.id, door=env.dfs),
        config.cluster.id,
        uid,
        url=str(parse_url(config.dfs.url)),
        average_ns=config.disk_check.average_window.ns,
    )
