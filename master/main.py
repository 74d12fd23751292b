"""Starts one master: reads its configuration, opens the log, serves, and stops in an orderly way on SIGTERM.

Rules: ready means that the ports serve, not that there is a leader; one JSON line on standard output says so. Whatever
breaks ends the process: a master never continues with half of its state. Exit 0 after SIGTERM or SIGINT, 2 for a
configuration that is wrong, 1 for anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from holdfast.common.agreement import secret_digest
from holdfast.common.config import config as configuration
from holdfast.common.config.config import Config
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.net import detour
from holdfast.common.security.server import ServerSecurity, read_other_secret, read_secret
from holdfast.common.system.descriptors import raise_descriptor_limit
from holdfast.common.system.files import read_small_text
from holdfast.common.system.idle import Idle, calm_collector, tame_allocator
from holdfast.common.system.log import log_event, set_up_logging
from holdfast.common.system.loop_turns import LoopTurns
from holdfast.common.system.modes import close_to_others, keep_private
from holdfast.common.system.notify import Notifier
from holdfast.common.system.tasks import background
from holdfast.master.api.admin import Admin
from holdfast.master.api.budgets import Budgets
from holdfast.master.api.grpc import serve_grpc
from holdfast.master.api.handlers import Handlers
from holdfast.master.api.http import MasterHttp
from holdfast.master.api.registry import Registry
from holdfast.master.api.shuffles import Shuffles
from holdfast.master.backup import restored_index
from holdfast.master.control.dfs_cleaning import DfsCleaner
from holdfast.master.control.dfs_missing import DfsMissing
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.late import LateCopies
from holdfast.master.control.locations import Locations
from holdfast.master.control.moving import EpochMover
from holdfast.master.control.restoring import CopyRestorer
from holdfast.master.control.reviving import Reviver
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.events import Happened
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.waiters import WAITERS_MAX
from holdfast.master.observe.adherence import AdherenceCount
from holdfast.master.observe.events import log_all
from holdfast.master.observe.explaining import Explainer
from holdfast.master.observe.masters import Masters
from holdfast.master.observe.metrics import Metrics
from holdfast.master.observe.state_metrics import StateMetrics
from holdfast.master.raft.errors import TAKEN, RaftError, SettingsRefused, StorageFailed
from holdfast.master.raft.node import EXIT_DISK, RaftNode, RaftSettings
from holdfast.master.raft.transport import STRANGERS_MAX, TlsContexts
from holdfast.master.state_machine.state_machine import StateMachine, Subject
from holdfast.master.web.gather import Pages
from holdfast.master.web.support import SupportBundles

#: A stopping leader hands over before it exits, if that is quick.
_HAND_OVER_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run a master until a signal stops it; return the exit status."""
    parser = argparse.ArgumentParser(prog="holdfast master", description="Runs one master.")
    parser.add_argument("--config", type=Path, required=True, help="TOML file, see docs/operate/configuration.md")
    options = parser.parse_args(arguments)
    if not __debug__:
        return _refuse("start Python without -O; the masters' checks are assertions")
    try:
        config = _load(options.config)
        own = _own(config, options.config)
        secrets = _secrets(config)
        security = ServerSecurity.of(config, own.name, configuration.master_hosts(config, own))
        store = DfsStore(config.dfs, config.cluster.id) if config.dfs.url else None
    except ConfigError as error:
        return _refuse(str(error))
    set_up_logging(config.log.level, config.log.format)
    if security is not None:
        security.warn_of_end(time.time())
    detour.take_configured(config.faults)
    raise_descriptor_limit()
    keep_private()
    directory = Path(config.master.directory)
    if directory.is_dir():
        close_to_others(directory)
    calm_collector()
    tame_allocator()
    try:
        load = partial(_load, options.config)
        asyncio.run(_run(partial(MasterServer, config, own, secrets, security, store, load)))
    except (ConfigError, SettingsRefused) as error:
        return _refuse(str(error))
    except StorageFailed as error:
        log_event(LogEvent.RAFT_DISK_FAILED, reason=error)
        return EXIT_DISK
    except (RaftError, OSError) as error:
        log_event(LogEvent.MASTER_FAILED, reason=error)
        return 1
    return 0


def _refuse(reason: str) -> int:
    sys.stderr.writelines(f"holdfast master: {line}\n" for line in reason.splitlines())
    return 2


def _load(path: Path) -> Config:
    return configuration.parse(read_small_text(path, "the configuration"), os.environ, str(path))


def _own(config: Config, path: Path) -> configuration.MasterPeer:
    try:
        return configuration.require_master(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _secrets(config: Config) -> tuple[bytes, bytes]:
    """Return the secret by which masters authenticate each other, and one more that they accept or b"". Without one
    they may only meet on loopback."""
    if config.cluster.secret_file:
        return read_secret(config.cluster.secret_file), read_other_secret(config)
    for peer in config.master.peers:
        host = str(peer.raft).rpartition(":")[0]
        if host != "localhost" and not host.startswith("127.") and host != "[::1]":
            raise ConfigError(f"master {peer.name} listens at {peer.raft}: set cluster.secret_file, or use loopback")
    return f"holdfast loopback {config.cluster.id}".encode(), b""


class MasterServer:
    """The parts of one master, put together."""

    def __init__(
        self,
        config: Config,
        own: configuration.MasterPeer,
        secrets: tuple[bytes, bytes],
        security: ServerSecurity | None,
        store: DfsStore | None,
        load: Callable[[], Config],
    ) -> None:
        """`load` reads the configuration again. Raises ConfigError."""
        self._config = config
        self._own = own
        self._security = security
        self._loop = asyncio.get_running_loop()
        settings = _raft_settings(config, own, secrets, security)
        self._node = RaftNode(settings, StateMachine(self._changed, self._happened), on_leadership=self._led)
        self._leader = Leader(config, self._node, self._failed, security, restored_index(Path(config.master.directory)))
        self._turns = LoopTurns()
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()
        self._notifier = Notifier()
        self._masters = Masters(config)
        self._masters.secret_digest = secret_digest(secrets[0], config.cluster.id)
        self._fleet = fleet = Fleet(self._leader)
        registry = Registry(self._leader, fleet)
        locations = Locations()
        asker = Asker(self._leader)
        self._sealing = Sealing(self._leader, locations, asker)
        early = EarlySeals(self._leader, locations, asker, self._sealing.begun)
        LateCopies(self._leader, locations, asker)  # this, the restorer and the mover run on the leader
        CopyRestorer(self._leader, fleet, locations, asker)
        reviver = Reviver(self._leader, fleet, locations, self._sealing, early)
        EpochMover(self._leader, fleet, locations, self._sealing, early)
        self._cleaner = DfsCleaner(self._leader, store) if store is not None else None
        self._missing = DfsMissing(self._leader) if store is None else None
        self._budgets = Budgets()
        explainer = Explainer(self._leader, fleet, locations)
        self._adherence = AdherenceCount(self._leader, fleet, explainer)
        self._metrics = Metrics(StateMetrics(self._leader, self._gauges, self._adherence))
        admin = Admin(self._leader, self._masters, registry, fleet, explainer, self._adherence, self._sealing, load)
        self._pages = Pages(
            self._leader,
            self._masters,
            registry,
            fleet,
            self._sealing,
            self._adherence,
            admin.retention,
            explainer.describer,
        )
        self._handlers = Handlers(
            {
                "Shuffles": Shuffles(
                    self._leader, self._masters, registry, fleet, locations, self._sealing, reviver, asker
                ),
                "Registry": registry,
                "Admin": admin,
            },
            self._metrics,
            self._budgets,
        )
        bundles = SupportBundles(config, self._handlers, self._metrics)
        parts = (self._handlers, self._metrics, self._pages, bundles)
        self._http = MasterHttp(config.cluster.id, *parts, lambda: self._node.status().caught_up, security)

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._stopping.set()

    async def run(self) -> None:
        """Serve until a signal stops it. Raises ConfigError if a port is taken, and the error that ended it."""
        bind = self._config.master.bind
        host = configuration.advertised(bind, self._config.master.address, socket.gethostname())
        try:
            http_port = await self._http.server.start((bind, self._config.master.http_port))
            grpc, grpc_port = await serve_grpc(
                self._config.cluster.id,
                self._handlers,
                f"{bind}:{self._config.master.grpc_port}",
                security=self._security,
            )
        except OSError as error:
            raise ConfigError(f"{error}: {TAKEN}") from error
        self._masters.grpc = f"{host}:{grpc_port}"
        self._masters.http = f"{host}:{http_port}"
        self._node.start()
        watch = background(self._leader.events.watch(self._node.status), self._leader.fail)
        self._say_ready()
        self._notifier.ready(self._state())
        telling = background(self._notifier.watch(self._state, self._raft_turns))
        idle = background(_give_back(), self._leader.fail)
        try:
            await self._stopping.wait()
            log_event(LogEvent.MASTER_STOPPING, master=self._own.name)
            self._notifier.stopping()
            await self._hand_over()
        finally:
            telling.cancel()
            idle.cancel()
            self._turns.close()
            watch.cancel()
            self._pages.close()
            for looker in (self._cleaner, self._missing):
                if looker is not None:
                    looker.close()
            await grpc.stop(0.5)
            await self._http.server.stop()
            self._node.stop()
        if self._failure is not None:
            raise self._failure

    def _state(self) -> str:
        """The state of this master for the service manager: a few words."""
        status = self._node.status()
        doing = "leader" if self._leader.serving else f"follows {status.leader}" if status.leader else "no leader"
        return f"{doing}, term {status.term}"

    async def _raft_turns(self) -> None:
        """Return after a turn of Raft's thread: a master whose log makes no progress is as good as dead."""
        await asyncio.wrap_future(self._node.turn())

    def _say_ready(self) -> None:
        document = {
            "ready": True,
            "name": self._own.name,
            "http": self._masters.http,
            "grpc": self._masters.grpc,
            "raft": str(self._own.raft),
            "pid": os.getpid(),
        }
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    async def _hand_over(self) -> None:
        if not self._leader.serving or len(self._config.master.peers) == 1:
            return
        try:
            async with asyncio.timeout(_HAND_OVER_SECONDS):
                await asyncio.wrap_future(self._node.transfer_leadership())
                await self._leader.followed.wait()
        except (TimeoutError, RaftError) as error:
            log_event(LogEvent.LEADER_HANDOVER_FAILED, reason=error)

    def _changed(self, subjects: Iterable[Subject]) -> None:
        """Runs in Raft's thread."""
        if self._leader.waiters.watching:
            self._loop.call_soon_threadsafe(self._leader.waiters.wake, subjects)

    def _happened(self, time_ms: int, index: int, what: list[Happened]) -> None:
        """Runs in Raft's thread."""
        self._leader.events.applied(time_ms, index, what)
        if self._leader.serving:
            self._to_loop(partial(log_all, what))

    def _led(self, leads: bool, term: int) -> None:
        """Runs in Raft's thread."""
        self._to_loop(partial(self._leader.leadership, leads, term))

    def _to_loop(self, act: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return  # the loop is closed: the process ends

    def _gauges(self) -> Iterable[tuple[str, float]]:
        status = self._node.status()
        yield "serving", float(self._leader.serving)
        yield "term", status.term
        yield "commit_index", status.commit_index
        yield "applied_index", status.applied_index
        yield "log_entries", status.log_length
        yield "log_bytes", status.log_bytes
        yield "raft_turn_seconds_max", status.longest_turn
        yield "raft_turns_slow", status.slow_turns
        yield "loop_turn_seconds_max", self._turns.longest
        yield "loop_turns_slow", self._turns.slow
        yield "raft_strangers", status.strangers
        yield "raft_strangers_max", STRANGERS_MAX
        yield "raft_strangers_displaced", status.displaced
        yield "peers_connected", sum(p.connected for p in status.peers.values())
        yield "commands_proposed", self._leader.proposer.commands
        yield "entries_proposed", self._leader.proposer.entries
        yield "commands_waiting", self._leader.proposer.waiting
        yield "calls_under_way", self._budgets.calls.total
        yield "calls_under_way_max", self._budgets.calls.most
        yield "calls_refused", self._budgets.calls.refused
        yield "rpcs", self._budgets.rpcs.total
        yield "rpcs_max", self._budgets.rpcs.most
        yield from self._budget_gauges()
        yield "epochs_short", self._leader.short.epochs_short
        yield "copies_coming", self._leader.short.copies_coming
        yield "long_polls", self._leader.waiters.count
        yield "long_polls_max", WAITERS_MAX
        yield from self._node.local(lambda machine: list(_gauges_of(machine.state)))
        yield from self._fleet.gauges()
        for name, count in asdict(self._leader.counts).items():
            if self._cleaner is not None or not name.startswith("dfs_"):
                yield name, count

    def _budget_gauges(self) -> Iterable[tuple[str, float]]:
        budgets = self._budgets
        for name, shares in (("body_bytes", budgets.bodies), ("answer_bytes", budgets.answers)):
            yield name, shares.total
            yield f"{name}_max", shares.most
            yield f"{name}_refused", shares.refused
        yield "winners_bytes", self._sealing.winners.total
        yield "winners_bytes_max", self._sealing.winners.most
        yield "http_connections", self._http.server.connections
        yield "http_connections_max", self._http.server.limits.connections
        yield "http_connections_displaced", self._http.server.displaced


def _gauges_of(state: State) -> Iterable[tuple[str, float]]:
    yield "workers", state.workers_total
    yield "workers_alive", len(state.workers) - len(state.not_alive)
    yield "workers_draining", len(state.draining - state.not_alive)
    yield "applications", len(state.applications)
    yield "shuffles", state.shuffle_count
    yield "under_replicated_epochs", state.under_replicated
    yield "array_bytes", state.array_bytes
    yield "answers", state.answers.size


def _raft_settings(
    config: Config, own: configuration.MasterPeer, secrets: tuple[bytes, bytes], security: ServerSecurity | None
) -> RaftSettings:
    raft, faults = config.raft, config.faults
    return RaftSettings(
        node_id=own.name,
        address=str(own.raft),
        peers={peer.name: str(peer.raft) for peer in config.master.peers if peer.name != own.name},
        cluster_id=config.cluster.id,
        secret=secrets[0],
        directory=Path(config.master.directory),
        election_min=raft.election_timeout_min.seconds,
        election_max=raft.election_timeout_max.seconds,
        heartbeat=raft.heartbeat.seconds,
        leader_fallback=raft.election_timeout_max.seconds,
        compact_entries=raft.snapshot_entries,
        compact_bytes=raft.snapshot_bytes,
        faults_disk_delay=faults.disk_delay.seconds if faults.enabled else 0.0,
        faults_clock_offset=faults.clock_offset.seconds if faults.enabled else 0.0,
        tls=None if security is None else TlsContexts(security.listening, security.context),
        other_secret=secrets[1],
    )


async def _give_back() -> None:
    """Have the system get back what a rush of calls needed."""
    idle = Idle()
    while True:
        await asyncio.sleep(1.0)
        idle.tick()


async def _run(make: Callable[[], MasterServer]) -> None:
    server = make()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    await server.run()
