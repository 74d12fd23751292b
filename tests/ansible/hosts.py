"""Hosts with a systemd of their own on one machine: namespaces over a Debian root that they share.

Rules: needs root, `mmdebstrap` (apt) and `ip`; nothing of the machine's own network, mounts or settings is changed,
and nothing is left behind but the base. Each host has an overlay of its own, so it keeps its files over a kill and a
start, and loses them with `wipe`. All hosts, and the control host, from which Ansible comes by ssh, are on a bridge
in a network namespace. A host is killed by killing its init, as pulling the plug would, but for the page cache, which
survives.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from holdfast.common.system import process
from tests.support.waiting import wait_until

SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "openssh-server", "iproute2", "procps"),
    "openjdk-17-jdk-headless",
)
#: Units that have nothing to do here, or would look at the machine around.
MASKED = (
    *("systemd-sysctl.service", "systemd-modules-load.service", "systemd-pstore.service", "fstrim.timer"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "dev-hugepages.mount"),
    *("sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
)
NETWORK = "10.213.77"
BOOT = Path(__file__).with_name("boot.sh")
BOOT_SECONDS_MAX = 60.0


def run(*words: object, check: bool = True, environ: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it says; raises with that if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(environ or {})},
    )
    assert done.returncode == 0 or not check, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def base(directory: Path) -> Path:
    """Return the root that all hosts share, made once: some 60 seconds and 600 MB."""
    root = directory / f"root-{SUITE}"
    if not root.exists():
        directory.mkdir(parents=True, exist_ok=True)
        making = directory / f"making-{os.getpid()}"
        include = f"--include={','.join(PACKAGES)}"
        run("mmdebstrap", "--variant=minbase", "--mode=root", include, SUITE, making)
        (making / "var/lib/dbus/machine-id").unlink(missing_ok=True)
        (making / "etc/machine-id").write_text("")
        for unit in MASKED:
            link = making / "etc/systemd/system" / unit
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        making.rename(root)
    return root


class Network:
    """The bridge, in a namespace of its own, where the control host is."""

    def __init__(self) -> None:
        self.name = f"hf{secrets.token_hex(3)}"
        self.address = f"{NETWORK}.1"
        run("ip", "netns", "add", self.name)
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "link", "add", "br0", "type", "bridge")
        self.inside("ip", "address", "add", f"{self.address}/24", "dev", "br0")
        self.inside("ip", "link", "set", "br0", "up")

    def inside(self, *words: object, check: bool = True, environ: Mapping[str, str] | None = None) -> str:
        """Run a command on the control host."""
        return run("ip", "netns", "exec", self.name, *words, check=check, environ=environ)

    def close(self) -> None:
        """Remove it."""
        run("ip", "netns", "del", self.name, check=False)


class Host:
    """One host, running or not."""

    def __init__(
        self, network: Network, number: int, name: str, root: Path, directory: Path, key: str, binds: Sequence[str] = ()
    ) -> None:
        """`key` is the public key that root lets in; `binds` are SOURCE:TARGET, read-only."""
        self.name, self.address = name, f"{NETWORK}.{10 + number}"
        self._network, self._base, self._directory, self._key = network, root, directory / name, key
        self._binds = tuple(binds)
        self._namespace = f"{network.name}{number}"
        self._cgroups = directory / "cgroup"
        self._process: subprocess.Popen[bytes] | None = None
        self._connect(f"v{number}")
        self.wipe()

    def _connect(self, cable: str) -> None:
        outer = self._network.name
        run("ip", "netns", "add", self._namespace)
        run("ip", "-n", outer, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        run("ip", "-n", outer, "link", "set", cable, "master", "br0", "up")
        for words in ("link set lo up", f"address add {self.address}/24 dev eth0", "link set eth0 up"):
            run("ip", "-n", self._namespace, *words.split())
        self._cable = cable

    def wipe(self) -> None:
        """Make it a new machine of the same name and address, which does not run."""
        assert self._process is None, f"{self.name} runs"
        shutil.rmtree(self._directory, ignore_errors=True)
        etc = self._directory / "upper" / "etc"
        etc.mkdir(parents=True)
        (etc / "machine-id").write_text(secrets.token_hex(16) + "\n")
        (etc / "hostname").write_text(self.name + "\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        ssh = self._directory / "upper" / "root" / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        ssh.parent.chmod(0o700)
        (ssh / "authorized_keys").write_text(self._key)

    def boot(self) -> None:
        """Start it; come back when it lets people in."""
        cgroup = self._cgroups / self._namespace
        cgroup.mkdir(exist_ok=True)
        unshare = "unshare --mount --pid --uts --ipc --cgroup --fork --kill-child=SIGKILL"
        script = f'echo $$ > {cgroup}/cgroup.procs; exec ip netns exec {self._namespace} {unshare} bash "$@"'
        command = ["bash", "-c", script, "bash", BOOT, self.name, self._base, self._directory, *self._binds]
        log = self._directory.with_suffix(".console.log")
        self._process = process.spawn([str(word) for word in command], log=log)
        wait_until(self._up, f"{self.name} to boot, see {log}", BOOT_SECONDS_MAX)

    def _up(self) -> bool:
        return self._init() != 0 and self.inside("systemctl", "is-active", "ssh", check=False).strip() == "active"

    def _init(self) -> int:
        """Process id of its init, as this machine counts; 0 if there is none (yet)."""
        if self._process is None:
            return 0
        pid = self._process.pid
        try:
            # unshare's child; before the exec of unshare there may be others, which nsenter could not enter as a host
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            init = int(children[0])
            return init if "systemd" in Path(f"/proc/{init}/cmdline").read_text() else 0
        except (OSError, IndexError):
            return 0

    def inside(self, *words: object, check: bool = True) -> str:
        """Run a command on it, as root."""
        return run("nsenter", "-t", self._init(), "-a", *words, check=check)

    def start(self, name: str, log: Path, *words: object) -> subprocess.Popen[bytes]:
        """Start a command on it that goes on, and ends with the host."""
        return process.spawn(["nsenter", "-t", str(self._init()), "-a", *map(str, words)], log=log / f"{name}.log")

    def kill(self) -> None:
        """Pull the plug."""
        if self._process is not None:
            if init := self._init():
                os.kill(init, signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def cut(self, off: bool = True) -> None:
        """Pull the network's cable, or put it back."""
        run("ip", "-n", self._network.name, "link", "set", self._cable, "down" if off else "up")

    def close(self) -> None:
        """End it and remove what belongs to it, files included."""
        self.kill()
        run("ip", "netns", "del", self._namespace, check=False)
        cgroup = self._cgroups / self._namespace
        for inner, _, _ in os.walk(cgroup, topdown=False):
            wait_until(partial(_removed, inner), f"{inner} to be empty")
        shutil.rmtree(self._directory, ignore_errors=True)


def _removed(cgroup: str) -> bool:
    try:
        os.rmdir(cgroup)
    except FileNotFoundError:
        return True
    except OSError:  # processes on their way out
        return False
    return True


class World:
    """Hosts, the network between them, and the key with which the control host comes in; a context manager."""

    def __init__(self, directory: Path, base_directory: Path) -> None:
        self._root = base(base_directory)
        self._directory = directory
        self.key = directory / "key"
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self._cgroups = self._directory / "cgroup"
        self._cgroups.mkdir()
        run("mount", "-t", "cgroup2", "cgroup2", self._cgroups)
        self.network = Network()
        return self

    def add(self, name: str, binds: Sequence[str] = ()) -> Host:
        """A new host, which is running when this returns."""
        key = self.key.with_suffix(".pub").read_text()
        number = len(self.hosts)
        host = Host(self.network, number, name, self._root, self._directory, key, binds)
        self.hosts[name] = host
        host.boot()
        return host

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.close()
        self.network.close()
        run("umount", self._cgroups, check=False)
