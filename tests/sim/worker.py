"""A simulated worker: the product's server and storage over all its starts, on simulated disks.

What is simulated lies below the product's doors: disks, index, threads and clock (tests/sim/env), connections
(network.py) and the masters' answers. Storage, services and cores are the product's, wired as in server/process.py.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.common.config.config import DfsSection, from_tables
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, MapSeal, MapSealed
from holdfast.common.formats.reduce_messages import Push, Restore, Seal
from holdfast.common.ids import NO_WORKER, ShuffleKey, WorkerId
from holdfast.worker.core.health import HealthLimits
from holdfast.worker.server.context import ServerBounds, WorkerContext
from holdfast.worker.server.membership.departure import Departure
from holdfast.worker.server.membership.registration import Registration
from holdfast.worker.server.membership.worker_identity import (
    IdentityKeeper,
    KeptIdentity,
    WorkerAddresses,
    WorkerIdentity,
    directory_paths,
)
from holdfast.worker.server.services.data_server import DataServer
from holdfast.worker.storage import names
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.identity import Identity
from holdfast.worker.storage.index.records import encode_shuffle
from holdfast.worker.storage.layout import parse_folder
from holdfast.worker.storage.prepare import prepare
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store
from tests.sim.clock import Life, Violation, VirtualLoop, here, pause
from tests.sim.env.dfs import DFS_TIMES, Bucket
from tests.sim.env.disks import Device, Disks, File, Folder
from tests.sim.env.machine import sim_env
from tests.sim.env.process import Aim, KilledError, Process
from tests.sim.network import Network, ServerEnd, SimBody
from tests.sim.oracle import Oracle

if TYPE_CHECKING:
    from holdfast.worker.storage.env.interfaces import Env
    from tests.sim.scenario import Shape

#: The largest body: small, so that credit is scarce.
BODY_BYTES = 1024
#: How often a worker asks what it may delete.
CHECK_SECONDS = 1.5
#: How often disks are probed, and after how long a probe hangs.
PROBE_SECONDS = 1.0
#: How often the DFS is looked at.
LOOK_SECONDS = 3.0
_HEALTH = HealthLimits(probe_timeout_ns=8 * 10**9)
#: What the oracle hears of.
_WATCHED = (FrameType.PUSH, FrameType.REPLICATE, FrameType.SEAL, FrameType.RESTORE, FrameType.MAP_SEAL)
#: A worker that cannot start is started again.
AGAIN_SECONDS = 1.0
#: What a start says of a directory that it takes for somebody else's.
_UNKNOWN = "has no readable identity"


def dfs_section(url: str) -> DfsSection:
    """How workers and masters reach the DFS."""
    return from_tables({"dfs": {"url": url, **DFS_TIMES}}).dfs


class ObservedServer(DataServer):
    """A data server of which the oracle hears what it is to forget."""

    def __init__(self, forgets: Callable[[ShuffleKey], None], context: WorkerContext) -> None:
        super().__init__(context)
        self._forgets = forgets

    def forget(self, shuffle: ShuffleKey) -> None:
        self._forgets(shuffle)
        super().forget(shuffle)


class SimWorker:
    """One worker, over all its starts."""

    def __init__(
        self,
        number: int,
        loop: VirtualLoop,
        network: Network,
        rng: random.Random,
        oracle: Oracle,
        shape: Shape,
        bucket: Bucket | None = None,
    ) -> None:
        """`bucket`: the DFS, if there is one."""
        self.name = f"w{number}"
        #: which it shares with others, or has for itself
        self.host = self.name if shape.per_host == 1 else f"h{(number - 1) // shape.per_host + 1}"
        self.bucket = bucket
        self._loop, self._network, self._rng, self._oracle, self._shape = loop, network, rng, oracle, shape
        self.disks = Disks(rng)
        self.paths = [f"/{self.name}/d{each}" for each in range(len(shape.tiers))]
        # On disks of their own, or all on one, where the worker makes them.
        mounts = [f"/{self.name}"] if shape.shared else self.paths
        self.devices: list[Device] = [self.disks.mount(path) for path in mounts]
        self.life = Life(self.name)
        self.life.alive = False
        self.process: Process | None = None
        self.env: Env
        #: told when the process dies by itself, or cannot start
        self.on_crash: Callable[[SimWorker], None] = lambda _: None
        self.number: WorkerId = NO_WORKER
        #: steps until the next start dies in the middle of one, or in which; and whether its machine goes down with it
        self.armed: int | None = None
        self.aim: Aim | None = None
        self.loses_power = False
        #: somebody has said that its host goes away: its copies count as gone, and can be read
        self.leaving = False
        #: when it was not running, or the masters called it lost, the last time
        self.missed_at = 0.0
        #: reasons why data may be lost here
        self.sins: dict[str, None] = {}
        #: why it could not start
        self.problem = ""
        self._names = 0
        #: how often this start was asked to delete what it still deletes, and where one of these did not do all of it
        self._forgetting: Counter[ShuffleKey] = Counter()
        self._half_forgotten: set[ShuffleKey] = set()
        #: directories that are not there, or are another's, and what will be there again
        self.gone: dict[str, Folder] = {}
        #: those in which a start had its index
        self._indexed: set[str] = set()

    def _settings(self) -> StoreSettings:
        shape = self._shape
        roomy = self.paths[-1] if shape.roomy else ""
        return StoreSettings(
            cluster_id="sim",
            worker_name=self._name(),
            directories=tuple(
                DirectorySettings(path=path, tier=tier, capacity_bytes=0 if path == roomy else shape.capacity)
                for path, tier in zip(self.paths, shape.tiers, strict=True)
            ),
            sync_threads=2,
            open_files_max=shape.open_files,
            segment_bytes=shape.segment_bytes,
            health=_HEALTH,
            tiers=shape.tier_rules,
            open_away=self._open_away if self.bucket is not None else None,
        )

    def _open_away(self, uid: bytes, env: Env) -> Away:
        """As worker/main.py."""
        assert self.bucket is not None
        section = dfs_section(self.bucket.url)
        store = partial(DfsStore, section, "sim", draw=self._rng.random, door=env.dfs)
        return Away(env, store, "sim", uid, url=section.url)

    def _name(self) -> str:
        """What it is called: as its directories say, and otherwise as nobody was called yet, since the masters give no
        name to another worker."""
        for path in self.paths:
            try:
                found = Identity.decode(self.disks.read(f"{path}/{names.IDENTITY}")).worker_name
            except (OSError, HoldfastError):
                continue
            if found.partition(".")[0] == self.name:
                return found
        self._names += 1
        return f"{self.name}.{self._names}"

    def start(self) -> None:
        """Open the directories and serve; what cannot be opened is tried again later."""
        if self.life.alive:
            return
        self.life = life = Life(self.name)
        self.missed_at = self._loop.now
        self._forgetting.clear()
        self._half_forgotten.clear()
        token = here.set(life)
        try:
            self.process = process = Process(self.disks, self._rng, lambda: self._died(life))
            process.armed, self.armed = self.armed, None
            process.aim, self.aim = self.aim, None
            self.env = sim_env(process, self._loop, self._rng, speed=self._shape.speed, bucket=self.bucket)
            self._network.servers[self.name] = self
            self._look_for_indexes()
            try:
                self._serve()
                self._indexed.update(self.paths)
            except KilledError:
                pass
            except (HoldfastError, OSError) as error:
                self.problem = str(error)
                if _UNKNOWN in self.problem and not {"rotten", "unreadable"} & self.sins.keys():
                    self._oracle.fail(f"{self.name} does not know its own directory: {error}")
                self.crash(power=False)
                self._loop.call_soon(self.on_crash, self)
            else:
                self.problem = ""
        finally:
            here.reset(token)

    def _look_for_indexes(self) -> None:
        """An index that was served from stays, whatever becomes of the machine, unless somebody took it away, or it
        could not be read: then it is put aside, and made anew."""
        if self.gone or {"wiped", "meddled", "rotten", "unreadable"} & self.sins.keys():
            return
        for path in self._indexed:
            try:
                self.disks.find(f"{path}/{names.INDEX_DATA}")
            except OSError as error:
                self._oracle.fail(f"{self.name} has lost an index by itself: {error}")

    def _serve(self) -> None:
        shape = self._shape
        settings = self._settings()
        self.store = store = open_store(prepare(settings, self.env))
        self.standing = standing = WorkerIdentity("sim", settings.worker_name, store.incarnation, uid=store.worker_uid)
        context = WorkerContext(store, standing, ServerBounds(shape.memory, 4096, shape.limits))
        self.counters = context.counters
        context.asking.learn(store.shuffles())
        kept = KeptIdentity.read(self.env.files, directory_paths(store))
        standing.given(kept.worker, kept.state, kept.raft_index)
        keeper = IdentityKeeper(store, self.env.files, standing)
        self.server = server = ObservedServer(partial(self._oracle.deleted, self), context)
        self.seals, self.pushes = server.seals, server.pushes
        standing.addresses = WorkerAddresses(self.host, "", f"{self.name}:1", f"{self.name}:2", "1", self.host)
        departure = Departure(server, standing, 0, asyncio.Event())
        self._delivered = 0.0
        store.run_on(self._deliver)
        store.forget = partial(self._forget, store.forget)  # type: ignore[method-assign]
        server.begin_unregistered(known=standing.worker != NO_WORKER)
        self._learn_number()
        server.tick()
        self.monitor = store.monitor(PROBE_SECONDS)
        self.monitor.start()
        store.watch_away(LOOK_SECONDS)
        registration = Registration(context, keeper, server, departure, int)
        self._loop.create_task(registration.run(""))
        self._loop.create_task(self._tick(keeper))

    def _forget(self, forget: Callable[..., Future[int]], keys: Iterable[ShuffleKey]) -> Future[int]:
        """Delete shuffles; the oracle hears when that is done, by all who were asked for it meanwhile: a second ask
        does nothing where the first one is at it, and what hangs is left out."""
        wanted, life, hanging = list(keys), self.life, self.store.hanging
        self._forgetting.update(wanted)
        done = forget(wanted)

        def over(done: Future[int]) -> None:
            if self.life is not life or not life.alive:
                return
            self._forgetting.subtract(wanted)
            if hanging or done.exception() is not None:
                self._half_forgotten.update(wanted)
            ended = [key for key in wanted if not self._forgetting[key]]
            whole = [key for key in ended if key not in self._half_forgotten]
            self._half_forgotten.difference_update(ended)
            self._oracle.gone(self, whole)

        done.add_done_callback(over)
        return done

    def _deliver(self, act: Callable[[], object]) -> None:
        """Run on the loop what a thread hands over: late, and in its order."""
        now = self._loop.now
        self._delivered = max(self._delivered, now + self._rng.uniform(0.0, self._shape.speed / 4)) + 1e-9
        self._loop.on(self.life, self._delivered - now, lambda: self._guarded(act))

    @staticmethod
    def _guarded(act: Callable[[], object]) -> None:
        try:
            act()
        except KilledError:
            pass

    def _died(self, life: Life) -> None:
        """The process ends by itself, in the middle of what it does."""
        life.alive = False
        self._loop.call_soon(self._crashed, life)

    def _crashed(self, life: Life) -> None:
        if self.life is life:
            self.crash(power=self.loses_power)
            self.on_crash(self)

    def crash(self, power: bool) -> None:
        """Kill the process, or cut the power of the machine."""
        self.missed_at = self._loop.now
        self._network.host_ended(self.name)
        self._loop.sockets.ended(self.life)
        self.life.end()
        self.loses_power = False
        if self.process is not None:
            self.process.kill()
        self.sins["killed"] = None
        if power:
            self.sins["power"] = None
            self.disks.power_loss()

    def end(self) -> None:
        """The story is over: what its threads wait for never comes."""
        if self.process is not None:
            self.process.kill()

    def empty(self, paths: list[str]) -> None:
        """There are empty directories in the place of these."""
        for path in paths:
            if path not in self.gone:
                self.disks.put(path, self.disks.empty(self.disks.take_away(path)))
                self._indexed.discard(path)

    def come_back(self, path: str) -> None:
        """A directory is there again, if it is not yet; whoever has it open meanwhile starts anew."""
        folder = self.gone.pop(path, None)
        if folder is None:
            return
        if path.rpartition("/")[2] in self.disks.folder(path.rpartition("/")[0]).entries:
            self.disks.take_away(path)
            self._oracle.replaced(self)
        self.disks.put(path, folder)
        self._oracle.meddled(self)
        if self.life.alive:
            self.crash(power=False)
            self.start()

    async def _tick(self, keeper: IdentityKeeper) -> None:
        """See process.py."""
        while True:
            await pause(1.0)
            self._learn_number()
            self.server.tick()
            self.monitor.look()
            keeper.keep()
            self.check()
            self._oracle.looked(self)
            self._oracle.look_for_gone(self)

    def _learn_number(self) -> None:
        if self.standing.worker != NO_WORKER:
            self.number = self.standing.worker
            self._oracle.numbers[self.number] = self

    def check(self) -> None:
        """What must hold of the cores between two events."""
        self.server.asking.registered.check()
        self.pushes.reduce.check()
        self.server.maps.files.check()
        self.server.streams.streams.check()

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which anything is here, by what the worker says and by what lies on its disks."""
        said = self.store.shuffles() if self.life.alive else []
        return {*said, *(key for key, _ in self._files())}

    def has_left(self, shuffle: ShuffleKey) -> str:
        """What is left of a shuffle on the disks and in the books; "" if nothing is."""
        if shuffle in self.store.shuffles():
            return "it is in the books"
        for key, name in self._files():
            if key == shuffle:
                return f"the file {name}"
        prefix = encode_shuffle(shuffle)
        for path in self.paths:
            with suppress(OSError):
                index = self.disks.find(f"{path}/{names.INDEX_DATA}")
                if isinstance(index, File) and index.index is not None:
                    for record in index.index.table.items:
                        if record[1:].startswith(prefix):
                            return f"the record {record[:1]!r} in the index of {path}"
        return ""

    def half_copies(self) -> list[str]:
        """Files that were being copied."""
        return [name for _, name in self._files() if name.endswith(names.MOVING_SUFFIX)]

    def _files(self) -> Iterator[tuple[ShuffleKey, str]]:
        """What lies on the disks, by shuffle."""
        for path in self.paths:
            with suppress(OSError):
                for above, folder in self.disks.folder(f"{path}/{names.DATA}").entries.items():
                    for name, node in folder.entries.items() if isinstance(folder, Folder) else ():
                        key = parse_folder(above, name)
                        if key is not None and isinstance(node, Folder) and path not in self.gone:
                            yield from ((key, each) for each in node.entries)

    # as the frame server does

    def accept(self, end: ServerEnd, hello: Hello) -> object:
        end.watch = self._watched
        return self.server.hello(end, hello)  # type: ignore[arg-type]

    def lost(self, end: ServerEnd) -> None:
        self._do(lambda: self.server.lost(end))  # type: ignore[arg-type]

    def writable(self, end: ServerEnd) -> None:
        self._do(lambda: self.server.writable(end))  # type: ignore[arg-type]

    def handle(self, end: ServerEnd, header: FrameHeader, meta: bytes, body: bytes) -> None:
        if header.type in _WATCHED:
            end.asked[header] = meta, body
        if header.type is FrameType.RESTORE and self.life.alive:
            self._oracle.restoring(self, Restore.decode(meta))
        self._do(lambda: self._handle(end, header, meta, body))

    def _handle(self, end: Any, header: FrameHeader, meta: bytes, body: bytes) -> None:
        with_body = header.type in (FrameType.PUSH, FrameType.REPLICATE, FrameType.MAP_PUSH)
        try:
            if not with_body:
                self.server.frame(end, header, meta, None)
            elif self.server.admit(end, header, meta):
                self.server.frame(end, header, meta, SimBody(body))  # type: ignore[arg-type]
        except HoldfastError:
            end.abort()

    def _do(self, act: Callable[[], object]) -> None:
        """Something happens to the process."""
        if not self.life.alive:
            return
        try:
            act()
            if self._rng.random() < self._shape.checks:
                self.check()
        except KilledError:
            pass
        except AssertionError as error:
            raise Violation(f"{self.name}: {error!r}") from error

    def _watched(self, end: ServerEnd, header: FrameHeader, meta: bytes) -> None:
        """An answer is about to go: the oracle sees it."""
        self._learn_number()
        asked = end.asked.get(header)
        if asked is None or not self.life.alive:
            return
        if header.type is FrameType.SEAL:
            self._oracle.sealed(self, Seal.decode(asked[0]), meta)
        elif header.type is FrameType.RESTORE:
            self._oracle.restored(self, Restore.decode(asked[0]), meta)
        elif header.type is FrameType.MAP_SEAL:
            self._oracle.map_sealed(self, MapSeal.decode(asked[0]).file, MapSealed.decode(meta))
        else:
            push, to_client = Push.decode(asked[0]), header.type is FrameType.PUSH
            self._oracle.acknowledged(self, push, asked[1], meta, to_client=to_client)
