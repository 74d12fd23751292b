"""A worker process from its directories on: data port, then HTTP and the masters, and its end.

Rules: it serves sealed data before it has loaded what it needs to talk to the masters. One line of JSON on standard
output says that it serves; logs go to standard error. SIGTERM ends it in order as soon as that is safe (departure.py),
SIGINT at once. Called by main.py.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.common.config.config import Config, advertised
from holdfast.common.errors import ConfigError, RetryError
from holdfast.common.ids import NO_WORKER
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net import detour
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.server import serve
from holdfast.common.security.server import ServerSecurity
from holdfast.common.system.descriptors import WorkerDescriptors
from holdfast.common.system.idle import Idle, calm_collector, resident_bytes, tame_allocator
from holdfast.common.system.log import log_event, set_up_logging
from holdfast.common.system.loop_turns import LoopTurns
from holdfast.common.system.machine import this_machine
from holdfast.common.system.modes import close_to_others
from holdfast.common.system.notify import Notifier
from holdfast.common.system.tasks import awaited, background
from holdfast.common.system.waiting import SAY_SECONDS
from holdfast.common.version import VERSION
from holdfast.worker.core.write.reduce import SplitLimits
from holdfast.worker.server.context import ServerBounds, WorkerContext
from holdfast.worker.server.membership.departure import Departure
from holdfast.worker.server.membership.worker_identity import (
    IdentityKeeper,
    KeptIdentity,
    WorkerAddresses,
    WorkerIdentity,
    directory_paths,
)
from holdfast.worker.server.observe.http import serve_http
from holdfast.worker.server.observe.status import WorkerStatus
from holdfast.worker.server.services.data_server import DataServer
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.storage.disks.monitor import Monitor
from holdfast.worker.storage.env.directory_paths import doubts
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.prepare import Pending
from holdfast.worker.storage.store import Store, open_store

#: Seals on their way get this long at SIGTERM.
STOP_SECONDS_MAX = 5.0
#: An end takes so long at most; what hangs is left behind then.
END_SECONDS_MAX = 20.0
#: Lost epochs that a log line names.
_EPOCHS_NAMED = 10
TICK_SECONDS = 1.0
#: Free body buffers of a busy worker: those of some 25 connections that send 1 MiB frames.
STOCK_BYTES = 32 * MIB


def run(config: Config, pending: Pending, security: ServerSecurity | None) -> None:
    """Open the directories, serve until told to stop. Raises ConfigError or OSError, also for a taken port."""
    set_up_logging(config.log.level, config.log.format)
    tame_allocator()
    if security is not None:
        security.warn_of_end(time.time())
    detour.take_configured(config.faults)
    for sentence in doubts(pending.settings.directories):
        log_event(LogEvent.DIRECTORY_MISCONFIGURED, reason=sentence)
    for directory in pending.settings.directories:
        close_to_others(Path(directory.path))
    pending.env = Faults.of(config.faults).door(pending.env)
    store = open_store(pending)
    worker = WorkerProcess(config, store, pending.env.files, security)
    try:
        asyncio.run(worker.run())
    finally:
        worker.ending.begin()  # where it ends by an error
        store.close()
        worker.ending.over()
    if store.away is not None and store.away.hanging:
        _leave("a DFS", 0)


class Ending:
    """The time that an orderly end has. What holds it up (a disk or a store that nobody knows to hang yet) is told of,
    and then left behind. Any thread."""

    def __init__(self) -> None:
        #: with which the process ends if it is out of time
        self.code = 0
        log_slow = partial(log_event, LogEvent.WORKER_STOP_SLOW)
        self._timers = [threading.Timer(SAY_SECONDS, log_slow), threading.Timer(END_SECONDS_MAX, self._leave)]

    def begin(self) -> None:
        """It ends from now on; a second call does nothing."""
        for timer in self._timers:
            if timer.ident is None:
                timer.daemon = True
                timer.start()

    def over(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _leave(self) -> None:
        _leave("a disk or a DFS", self.code)


class WorkerProcess:
    """One worker, from its open directories to its end."""

    def __init__(self, config: Config, store: Store, files: Files, security: ServerSecurity | None) -> None:
        self._config = config
        self._security = security
        self._store = store
        self._files = files
        self._monitor = store.monitor(config.disk_check.interval.seconds)
        self._stop = asyncio.Event()
        self._notifier = Notifier()
        self.ending = Ending()

    async def run(self) -> None:
        """Serve until told to stop. Raises OSError if a port is taken, ConfigError if the masters never had this worker
        and refuse it."""
        config, store = self._config, self._store
        descriptors = WorkerDescriptors.here()
        standing = WorkerIdentity(
            config.cluster.id, config.worker.name, store.incarnation, uid=store.worker_uid, credentials=self._security
        )
        split = SplitLimits(int(config.worker.soft_split), int(config.worker.hard_split))
        bounds = ServerBounds(int(config.worker.memory), int(config.worker.disk_reserve), split, descriptors)
        context = WorkerContext(store, standing, bounds, faults=Faults.of(config.faults))
        context.asking.learn(store.shuffles())
        kept = KeptIdentity.read(self._files, directory_paths(store))
        standing.given(kept.worker, kept.state, kept.raft_index)
        keeper = IdentityKeeper(store, self._files, standing)
        server = DataServer(context)
        departure = Departure(server, standing, config.worker.drain_timeout.ns, self._stop)
        _stop_at_signals(departure.asked, departure.hurried)
        store.run_on(asyncio.get_running_loop().call_soon_threadsafe)
        server.begin_unregistered(known=kept.worker != NO_WORKER)
        server.tick()
        pool = BufferPool(bounds.memory, STOCK_BYTES)
        http = socket.create_server((config.worker.bind, config.worker.http_port))
        tls = self._security.listening if self._security is not None else None
        frames = await serve(config.worker.bind, config.worker.data_port, server, pool, tls, descriptors.connections)
        standing.addresses = _addresses(config, frames.address[1], http.getsockname()[1])
        _say_ready(standing)
        self._notifier.ready(_state(standing, departure))
        watch = background(self._notifier.watch(lambda: _state(standing, departure)))
        for sentence in store.report:
            log_event(LogEvent.STORAGE_OPENED, what=sentence)
        if active := context.faults.active():
            log_event(LogEvent.FAULTS_ENABLED, faults=active)
        status = WorkerStatus(context, server, frames, LoopTurns())
        self._monitor.start()
        store.watch_away(config.disk_check.interval.seconds)
        beside = awaited(self._beside(status, keeper, http, departure))
        stop_task = awaited(self._stop.wait())
        await asyncio.wait({stop_task, beside}, return_when=asyncio.FIRST_COMPLETED)
        if not stop_task.done():
            beside.result()  # raises what ended it
        self._notifier.stopping()
        self.ending.code = 2 if departure.refusal else 0
        self.ending.begin()
        in_time = await _finish(status, keeper)
        for task in (beside, watch):
            task.cancel()
        await asyncio.gather(beside, watch, return_exceptions=True)
        self._monitor.close()
        if store.hanging or not in_time:
            _leave("a disk", self.ending.code)
        if departure.refusal:
            raise ConfigError(departure.refusal)

    async def _beside(
        self, status: WorkerStatus, keeper: IdentityKeeper, http: socket.socket, departure: Departure
    ) -> None:
        """What runs beside the data port: ticks, HTTP, registration. Ends only by an error or by being cancelled."""
        await asyncio.to_thread(importlib.import_module, "holdfast.worker.server.membership.registration")
        from holdfast.worker.server.membership.registration import Registration

        registration = Registration(status.context, keeper, status.data, departure, resident_bytes)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_tick(status, keeper, self._monitor))
            tasks.create_task(registration.run(",".join(map(str, self._config.worker.masters))))
            runner = await serve_http(http, status, self._security, status.context.bounds.descriptors.http)
            calm_collector()
            try:
                await asyncio.Event().wait()
            finally:
                await runner.stop()


def _stop_at_signals(asked: Callable[[], None], hurried: Callable[[], None]) -> None:
    """Have SIGTERM call the first, SIGINT the second."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked)
    loop.add_signal_handler(signal.SIGINT, hurried)


def _addresses(config: Config, data_port: int, http_port: int) -> WorkerAddresses:
    this_host = socket.gethostname()
    name = advertised(config.worker.bind, config.worker.address, this_host)
    return WorkerAddresses(
        host=config.worker.host or this_host,
        rack=config.worker.rack,
        data_address=f"{name}:{data_port}",
        http_address=f"{name}:{http_port}",
        version=VERSION,
        machine_id=config.worker.machine_id or this_machine(),
        tags=config.worker.tags,
    )


def _state(standing: WorkerIdentity, departure: Departure) -> str:
    """How this worker is, for whoever looks at the service: a few words."""
    if departure.decommissioning:
        return "hands over open data, then shuts down"
    if departure.draining:
        return "draining: serves, and takes no new data"
    return f"serves, incarnation {standing.incarnation}" + ("" if standing.registered else "; not registered yet")


def _say_ready(standing: WorkerIdentity) -> None:
    line = {
        "ready": True,
        "role": "worker",
        "name": standing.name,
        "data": standing.addresses.data_address,
        "http": standing.addresses.http_address,
        "incarnation": standing.incarnation,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(line) + "\n")  # whoever started us waits for it
    sys.stdout.flush()


async def _tick(status: WorkerStatus, keeper: IdentityKeeper, monitor: Monitor) -> None:
    """What happens once a second: disks looked at, expiry, idle memory given back, and the standing kept if it has
    changed. Nothing of it waits for a disk, since that is how a disk that hangs is noticed."""
    idle = Idle()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        status.data.tick()
        monitor.look()  # behind what splits epochs: those of a directory that was isolated are split before it returns
        status.frames.pool.trim()
        idle.tick()
        keeper.keep()


def _leave(what: str, code: int) -> None:
    """End this process now: threads that wait for `what` would hold it up for as long as that hangs. Storage that was
    not closed is left as after a kill, which loses nothing."""
    log_event(LogEvent.WORKER_STOP_INCOMPLETE, what=f"{what} that hangs")
    sys.stdout.flush()
    os._exit(code)


async def _finish(status: WorkerStatus, keeper: IdentityKeeper) -> bool:
    """Take nothing new, let seals on their way end, say good-bye to everybody; False if a disk does not answer."""
    ending = RetryError("this worker is ending")
    status.frames.stop_accepting()
    status.data.end(str(ending))
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await status.context.running.wait()
    except TimeoutError:
        log_event(LogEvent.WORKER_STOP_INCOMPLETE, what="seals", count=len(status.context.running))
    if left := status.data.pushes.reduce.split_memory():
        log_event(LogEvent.DATA_LOST, epochs=len(left), first=left[:_EPOCHS_NAMED])
    status.data.pushes.forwarder.close()
    await status.frames.close(ending)
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await asyncio.gather(*map(asyncio.wrap_future, keeper.keep()))
    except TimeoutError:
        return False
    return True
