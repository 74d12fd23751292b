"""A fleet of hosts with an inventory, and playbooks run on it from the control host. Used by test_hosts.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from tests.ansible.hosts import Host, World, run
from tests.support.tree import ROOT

ANSIBLE = ROOT / "deploy" / "ansible"
#: Where Spark is on the host that has it; a package that Python can import, too.
SPARK_PYTHON = "/opt/spark"
_HOLDFAST = (sys.executable, "-P", "-m", "holdfast.tools.cli.main")
_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ControlPersist=60s"


@dataclass(frozen=True)
class Played:
    """What a run of a playbook came to: changes by host, and all that it said."""

    changed: dict[str, int]
    text: str


class Fleet:
    """Masters and workers of one cluster on hosts of a world."""

    def __init__(self, world: World, directory: Path, wheelhouse: Path) -> None:
        self.world, self.directory = world, directory
        self._wheelhouse = wheelhouse
        self._inventory = directory / "inventory" / "hosts.json"
        self._inventory.parent.mkdir()
        #: what docs/operate/operations.md calls DIR
        self.secrets = directory / "secrets"

    def declare(
        self,
        masters: Sequence[str],
        workers: Mapping[str, str],
        spark: Sequence[str],
        secured: bool = False,
        workers_per_host: int = 1,
        copies: int = 2,
        standalone: Sequence[str] = (),
    ) -> None:
        """Write the inventory: names of masters, hosts of workers with their racks, and hosts with Spark. `copies`:
        what Spark asks for, where there are so many hosts. `standalone`: of these the first has the master of a
        standalone Spark, the others its workers."""
        self._secured = secured
        places = {name: {"ansible_host": host.address} for name, host in self.world.hosts.items()}
        groups: dict[str, Any] = {
            "masters": {"hosts": {name: places[name] for name in masters}},
            "workers": {
                "hosts": {name: {**places[name], "holdfast_worker_rack": rack} for name, rack in workers.items()}
            },
            "spark": {"hosts": {name: places[name] for name in spark}},
        }
        if standalone:
            groups["spark_master"] = {"hosts": {name: places[name] for name in standalone[:1]}}
            groups["spark_workers"] = {"hosts": {name: places[name] for name in standalone[1:]}}
        (wheel,) = self._wheelhouse.glob("holdfast-*.whl")
        shared = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.world.key),
            "ansible_ssh_common_args": _SSH,
            "ansible_python_interpreter": "/usr/bin/python3",
            "holdfast_cluster_id": "trial",
            "holdfast_version": wheel.name.split("-")[1],
            "holdfast_wheelhouse": str(self._wheelhouse),
            "holdfast_secrets": str(self.secrets),
            "holdfast_journal_max_use": "50M",
            "holdfast_workers_per_host": workers_per_host,
            "holdfast_worker_directories": [
                {"path": f"/data{number}/holdfast", "tier": "SSD" if number % 2 else "HDD", "capacity": "2GiB"}
                for number in range(1, 3 if workers_per_host == 1 else 5)
            ],
            "holdfast_spark_home": f"{SPARK_PYTHON}/pyspark",
            "holdfast_spark_conf_directory": "/etc/spark",
            "holdfast_spark_replication": min(copies, len(workers)),
            "holdfast_spark_fallback": "never",
            "holdfast_standalone_cores": 1,
            "holdfast_standalone_memory": "1g",
            "holdfast_security_enabled": secured,
            # The driver's lease brings its newer tokens; rounds of changing the secret are shorter here than that.
            "holdfast_spark_settings": {"spark.holdfast.lease": "30s"} if secured else {},
        }
        self._inventory.write_text(json.dumps({"holdfast": {"children": groups, "vars": shared}}, indent=1))

    def make_secrets(self) -> None:
        """What docs/operate/operations.md has people make on the control host for a secured cluster."""
        secrets = self.secrets
        run(*_HOLDFAST, "ca", "init", secrets)
        for name, host in self.world.hosts.items():
            run(*_HOLDFAST, "ca", "issue", secrets, name, "--host", host.address)
        _draw(secrets / "cluster.secret")
        self._make_tokens()

    def adds_a_secret(self) -> None:
        """The next secret is taken, beside the one that tokens are made with."""
        _draw(self.secrets / "cluster.secret.other")

    def swaps_secrets(self) -> None:
        """The next secret is the one that tokens are made with."""
        own, other, aside = (self.secrets / name for name in ("cluster.secret", "cluster.secret.other", "aside"))
        own.rename(aside)
        other.rename(own)
        aside.rename(other)
        self._make_tokens()

    def drops_the_other_secret(self) -> None:
        """The secret of before is taken no more."""
        (self.secrets / "cluster.secret.other").unlink()

    def _make_tokens(self) -> None:
        for kind, name in (("admin", "playbooks"), ("user", "rounds")):
            path = self.secrets / f"{kind}.token"
            path.unlink(missing_ok=True)
            words = ("--kind", kind, "--name", name, "--days", 1, "--cluster", "trial")
            run(*_HOLDFAST, "token", *words, "--secret-file", self.secrets / "cluster.secret", "--out", path)

    def play(self, name: str, *words: str, good: bool = True) -> Played:
        """Run a playbook on the control host; it has to end well, or badly if not `good`."""
        program = shutil.which("ansible-playbook")
        assert program, "ansible-playbook is not there: run this by tox -e ansible"
        environ = {
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            # Connections that are kept are found by address, which the hosts of another run have as well.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.directory / "cp"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_FORKS": "5",
            "ANSIBLE_NOCOLOR": "1",
        }
        command = ["ip", "netns", "exec", self.world.network.name, program, "-i", str(self._inventory)]
        command += [str(ANSIBLE / "playbooks" / f"{name}.yml"), *words]
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environ},
        )
        with (self.directory / "playbooks.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command[4:])}\n{done.stdout}\n")
        assert (done.returncode == 0) == good, f"{name}: exit {done.returncode}\n{done.stdout[-6000:]}"
        recap = _RECAP.findall(done.stdout)
        if good:
            assert recap, done.stdout
            assert all(unreachable == failed == "0" for _, _, _, unreachable, failed in recap), done.stdout
        return Played({host: int(changed) for host, _, changed, _, _ in recap}, done.stdout)

    def ask(self, host: Host, *words: str) -> dict[str, Any]:
        """What a command of holdfast answers on a host, bad news included."""
        masters = json.loads(self._inventory.read_text())["holdfast"]["children"]["masters"]["hosts"]
        endpoints = ",".join(f"{each['ansible_host']}:7070" for each in masters.values())
        environ = [f"HOLDFAST_MASTERS={endpoints}"]
        if self._secured:
            environ += ["HOLDFAST_CA=/opt/holdfast/ca.pem", "HOLDFAST_TOKEN_FILE=/etc/holdfast/admin.token"]
        said = host.inside("env", *environ, "holdfast", *words, "--json", check=False)
        found = json.loads(said[said.index("{") : said.rindex("}") + 1])
        assert isinstance(found, dict)
        return found


def _draw(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_text(token_urlsafe(48) + "\n")


def wheels(directory: Path) -> Path:
    """A directory with the wheel of this tree and of all that it needs, for the Python of the hosts."""
    wheelhouse = directory / "wheelhouse"
    wheelhouse.mkdir(parents=True, exist_ok=True)
    for old in wheelhouse.glob("holdfast-*.whl"):
        old.unlink()
    package = os.environ.get("TOX_PACKAGE") or str(ROOT)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        f"--find-links={wheelhouse}",
        f"--wheel-dir={wheelhouse}",
        f"{package}[tools]",
    )
    return wheelhouse


def spark_binds() -> list[str]:
    """The Spark of this environment, for a host: a package that is both Spark's home and PySpark."""
    import py4j
    import pyspark

    return [f"{Path(str(found.__file__)).parent}:{SPARK_PYTHON}/{found.__name__}" for found in (pyspark, py4j)]
