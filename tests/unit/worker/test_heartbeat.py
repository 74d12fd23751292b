"""What a heartbeat says, and what it waits for."""

import asyncio
import threading
from pathlib import Path

from holdfast.common.system.idle import resident_bytes
from holdfast.worker.server.membership.departure import Departure
from holdfast.worker.server.membership.registration import Registration
from holdfast.worker.server.membership.worker_identity import IdentityKeeper, WorkerAddresses
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.storage.env.interfaces import FileSystem, Name
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import DataWorld, data_world


class StuckDisk(Disk):
    """A disk whose statvfs does not return while it is stuck."""

    def __init__(self) -> None:
        self.stuck = False
        self.go_on = threading.Event()

    def file_system(self, path: Name) -> FileSystem:
        if self.stuck:
            assert self.go_on.wait(60), "nobody let the disk go on"
        return super().file_system(path)


def registration_of(world: DataWorld) -> Registration:
    """What sends the heartbeats of this worker."""
    store, standing = world.store, world.standing
    departure = Departure(world.server, standing, 0, asyncio.Event())
    place = WorkerAddresses("h", "r", world.address, "h:1", "0", "m")
    keeper = IdentityKeeper(store, standing)
    return Registration(store, standing, keeper, Counters(), world.server, place, departure, resident_bytes)


def test_a31_a_heartbeat_waits_for_no_disk(tmp_path: Path) -> None:
    """A disk hangs in statvfs, and no check has found that out: heartbeats, the look at the room and the tick of the
    views go on, and tell what was known."""
    disk = StuckDisk()

    async def story() -> None:
        async with data_world(tmp_path, env=env_of(disk)) as world:
            registration, store = registration_of(world), world.store
            (before,) = registration._heartbeat().directories
            monitor = store.monitor(3_600)
            monitor.start()
            condition = store._directories[0].condition
            await wait_until_async(lambda: condition.watched, "the first look at the disk")
            disk.stuck = True

            def beat() -> tuple[int, bool, str]:
                store.look(0.1, 0)
                store.views.tick()
                (found,) = registration._heartbeat().directories
                return found.capacity_bytes, found.healthy, found.state

            try:
                reported = await asyncio.wait_for(asyncio.to_thread(beat), 60)
                assert reported == (before.capacity_bytes, True, "well")
            finally:
                disk.stuck = False
                disk.go_on.set()
                await asyncio.to_thread(monitor.close)

    asyncio.run(story())
