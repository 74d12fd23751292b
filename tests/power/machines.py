"""Three machines with a file system each (ext4, xfs, btrfs) on disks that lose what was not flushed, and their power.

Everything is mounted in the mount namespace of this process, and every loop device is let go of as soon as it is
mounted: the kernel frees it with the mount. So nothing is left on the host, however this process ends.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_until

#: What a segment of the push log has here, by the planted limits.
SEGMENT_BYTES = 1 << 20
_WRITE_AND_WAIT = 7
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
KINDS = ("ext4", "xfs", "btrfs")
IMAGE_MIB = 512
#: What a cut may tear a write into: btrfs wants its superblock of 4 KiB written whole, and xfs replays no block whose
#: first sector is newer than its log. What a file system cannot stand says nothing about Holdfast.
_BLOCKS = {"ext4": 512, "xfs": 4_096, "btrfs": 4_096}
_MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}


def skip_reason() -> str:
    """What is missing to cut power here; "" if nothing is."""
    if os.geteuid() != 0 or not os.environ.get("HOLDFAST_OWN_MOUNTS"):
        return "mounts file systems: run `tox -e power` as root"
    missing = [path for path in ("/dev/fuse", "/dev/loop-control") if not Path(path).exists()]
    missing += [command[0] for command in _MAKE.values() if shutil.which(command[0]) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def run(*command: str) -> str:
    """Run a command; its output, or an error with it."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


@dataclass
class Machine:
    """One machine: `number` counts from 1; `place` is where its disk is mounted."""

    number: int
    kind: str
    place: Path
    #: what is in memory of it
    memory: Path
    boot_file: Path
    boot: int = 0


class Machines:
    """All of them; used by one thread."""

    def __init__(self, root: Path, rng: random.Random, device: subprocess.Popen[str]) -> None:
        self._device = device
        self._disks = root / "disks"
        self._rng = rng
        self.boots = root / "boots"
        self.boots.mkdir()
        self.all = [
            Machine(number, kind, root / f"machine{number}", root / f"memory{number}", self.boots / str(number))
            for number, kind in enumerate(KINDS, 1)
        ]

    def make(self) -> None:
        """Make the file systems, and switch the machines on."""
        for machine in self.all:
            machine.place.mkdir()
            loop = self._loop(machine)
            try:
                run(*_MAKE[machine.kind], loop)
            finally:
                run("losetup", "-d", loop)
            self.switch_on(machine)

    def _loop(self, machine: Machine) -> str:
        return run("losetup", "-f", "--show", f"{self._disks}/{machine.number - 1}.{machine.boot}")

    def switch_on(self, machine: Machine) -> None:
        """Mount its disk; nothing is in its memory, and its boot id is another one."""
        loop = self._loop(machine)
        try:
            run("mount", loop, str(machine.place))
        finally:
            run("losetup", "-d", loop)  # freed with the mount
        shutil.rmtree(machine.memory, ignore_errors=True)
        machine.memory.mkdir()
        new = machine.boot_file.with_suffix(".new")
        new.write_text(f"{uuid.UUID(int=self._rng.getrandbits(128))}\n")
        new.rename(machine.boot_file)

    def cut(self, machine: Machine) -> tuple[int, int]:
        """Its power goes; its processes are dead. Return how many unflushed writes are on the disk, and of how many."""
        seed, block = self._rng.getrandbits(32), _BLOCKS[machine.kind]
        assert self._device.stdin is not None
        assert self._device.stdout is not None
        print("cut", machine.number - 1, seed, block, file=self._device.stdin, flush=True)
        _, kept, of = self._device.stdout.readline().split()
        machine.boot += 1
        # A process that a killed one had started goes a moment after it.
        wait_until(lambda: not subprocess.run(["umount", str(machine.place)], check=False).returncode, "its processes")
        return int(kept), int(of)

    def write_back(self, machine: Machine) -> None:
        """What the kernel may have done before the power went: parts of files were written to the disk in no order,
        names because somebody else synced, and more parts since, which are not flushed."""
        files = [path for path in machine.place.rglob("*") if path.suffix in (".push", ".open") and path.is_file()]
        for flushed in (True, False):
            for path in self._rng.sample(sorted(files), self._rng.randint(0, len(files))):
                self._write_some(path)
            if flushed and self._rng.random() < 0.8:
                with (machine.place / "other").open("a") as other:
                    other.write("x")
                    other.flush()
                    os.fsync(other.fileno())

    def _write_some(self, path: Path) -> None:
        with path.open("rb") as file:
            size = min(path.stat().st_size, 2 * SEGMENT_BYTES)
            for _ in range(self._rng.randint(1, 6)):
                at = self._rng.randrange(max(1, size)) // 4_096 * 4_096
                length = self._rng.choice((4_096, 65_536, SEGMENT_BYTES))
                _LIBC.sync_file_range(file.fileno(), at, length, _WRITE_AND_WAIT)

    def end(self) -> None:
        """Give everything back."""
        for machine in self.all:
            subprocess.run(["umount", "-l", str(machine.place)], check=False, capture_output=True)


@contextmanager
def machines(root: Path, rng: random.Random) -> Iterator[Machines]:
    """Three machines that are switched on; `root` is on another disk."""
    disks = root / "disks"
    disks.mkdir(parents=True)
    run("mount", "--make-rshared", "/")  # what is unmounted here is unmounted in the servers' namespaces, too
    command = [sys.executable, "-m", "tests.power.device", str(disks), str(len(KINDS)), str(IMAGE_MIB)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as device:
        assert device.stdout is not None
        assert device.stdin is not None
        try:
            assert device.stdout.readline() == "ready\n", "the disks cannot be mounted"
            found = Machines(root, rng, device)
            try:
                found.make()
                yield found
            finally:
                found.end()
        finally:
            device.stdin.close()
            subprocess.run(["umount", "-l", str(disks)], check=False, capture_output=True)
            device.terminate()
