"""The playbooks against real systemd hosts: from nothing to a cluster, a job that goes on through it all, and back to
nothing.

Long, and for `tox -e ansible`: it needs root, mmdebstrap and some minutes. `-k one_host` is the form for small
machines.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.fleet import SPARK_PYTHON, Fleet, spark_binds, wheels
from tests.ansible.hosts import Host, World
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces, for which it needs root"),
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="needs mmdebstrap: apt-get install mmdebstrap"),
]
MASTERS = ("m1", "m2", "m3")
WORKERS = {"w1": "r1", "w2": "r2"}
ROUND_SECONDS_MAX = 300.0
#: The class of an executor of Spark, as it is in its command line.
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Debian root and the wheels are; they outlive the run where HOLDFAST_TEST_HOSTS says where."""
    given = os.environ.get("HOLDFAST_TEST_HOSTS")
    return Path(given) if given else tmp_path_factory.mktemp("kept")


@pytest.fixture
def world(tmp_path: Path, kept: Path) -> Iterator[World]:
    """Hosts of one test; how the playbooks and the servers went is left below tmp_path."""
    with World(tmp_path / "hosts", kept) as made:
        yield made
        for name, host in made.hosts.items():
            journal = host.inside("journalctl", "--no-pager", "-o", "short-precise", "-u", "holdfast-*", check=False)
            (tmp_path / f"{name}.log").write_text(journal)


class Job:
    """The PySpark job on its host."""

    def __init__(self, host: Host, directory: Path, master: str = "") -> None:
        self._host, self._log = host, directory
        host.inside("rm", "-rf", "/var/tmp/job")  # of an earlier one
        host.inside("mkdir", "/var/tmp/job")
        script = Path(__file__).with_name("job.py").read_text("utf-8")
        host.inside("python3", "-c", f"import pathlib; pathlib.Path('/var/tmp/job/job.py').write_text({script!r})")
        environ = [f"PYTHONPATH={SPARK_PYTHON}", "SPARK_CONF_DIR=/etc/spark", "PYSPARK_PYTHON=/usr/bin/python3"]
        # Names of hosts mean nothing to the other hosts here.
        environ += [f"SPARK_LOCAL_IP={host.address}", f"SPARK_LOCAL_HOSTNAME={host.address}"] if master else []
        words = ("env", *environ, "python3", "/var/tmp/job/job.py", "/var/tmp/job", *filter(None, (master,)))
        self._process: subprocess.Popen[bytes] = host.start("job", directory, *words)

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds that ended, each with the right answer."""
        said = self._host.inside("cat", "/var/tmp/job/rounds", check=False)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]

    def goes_on(self, rounds: int = 2) -> None:
        """Wait for more rounds: it does not stand still."""
        before = len(self.rounds())

        def more() -> bool:
            assert self._process.poll() is None, f"the job ended: {(self._log / 'job.log').read_text()[-3000:]}"
            return len(self.rounds()) >= before + rounds

        wait_until(more, f"{rounds} more rounds of the job", ROUND_SECONDS_MAX)

    def stop(self) -> list[dict[str, Any]]:
        """End it in order; every round was right."""
        self._host.inside("touch", "/var/tmp/job/stop")
        assert self._process.wait(ROUND_SECONDS_MAX) == 0, (self._log / "job.log").read_text()[-3000:]
        return self.rounds()


def brings_sparks_token(fleet: Fleet, host: Host) -> None:
    """As docs/operate/operations.md has it; the user of the jobs, who is not the servers', can read both files and no
    secret."""
    token = (fleet.secrets / "user.token").read_text("utf-8").strip()
    host.inside(
        "sh", "-c", f"umask 077; echo {token} > /opt/holdfast/spark.token; chown nobody /opt/holdfast/spark.token"
    )
    as_nobody = ("runuser", "-u", "nobody", "--", "cat")
    host.inside(*as_nobody, "/opt/holdfast/ca.pem", "/opt/holdfast/spark.token")
    assert "Permission denied" in host.inside(*as_nobody, "/etc/holdfast/secret", check=False)


def changes_the_secret(fleet: Fleet, job: Job) -> None:
    """As operations.md has it, in three runs of the upgrade; the job goes on, and with the last one the token of
    before is refused."""
    (host,) = fleet.world.hosts.values()
    before = fleet.secrets / "user.token"
    host.inside("sh", "-c", f"umask 077; echo {before.read_text().strip()} > /var/tmp/before.token")
    for step in (fleet.adds_a_secret, fleet.swaps_secrets, fleet.drops_the_other_secret):
        assert fleet.ask(host, "status")["leader"]
        step()
        fleet.play("upgrade")
        job.goes_on(1)
    old = [f"HOLDFAST_MASTERS={host.address}:7070", "HOLDFAST_CA=/opt/holdfast/ca.pem"]
    said = host.inside("env", *old, "HOLDFAST_TOKEN_FILE=/var/tmp/before.token", "holdfast", "status", check=False)
    assert "not made with the secret of this cluster" in said
    assert "No such file" in host.inside("ls", "/etc/holdfast/secret.other", check=False)


def pids(fleet: Fleet) -> dict[str, str]:
    """The process of each host's server, of a host with workers the first one."""
    units = {name: f"holdfast-{'master' if name in MASTERS else 'worker@1'}" for name in fleet.world.hosts}
    return {
        name: fleet.world.hosts[name].inside("systemctl", "show", "-P", "MainPID", unit).strip()
        for name, unit in units.items()
    }


def leader(fleet: Fleet) -> str:
    """The host of the master that leads, which all masters agree on."""
    asked = fleet.world.hosts["w1"]
    reported = wait_until(lambda: fleet.ask(asked, "status").get("leader"), "a leader")
    return next(name for name, host in fleet.world.hosts.items() if reported == f"{host.address}:7070")


def well(fleet: Fleet) -> None:
    """Wait until the cluster calls itself healthy."""
    wait_until(lambda: fleet.ask(fleet.world.hosts["w1"], "status")["healthy"], "a healthy cluster", 90)


HOSTS = ("w1", "w2", "w3")


def test_three_workers_on_each_host(world: World, tmp_path: Path, kept: Path) -> None:
    """One master and three hosts with three workers each. A host is killed under a job with three copies, and under one
    with two; under this it is drained and upgraded, then gets another number of workers and is removed, all of it at
    once, and every answer is right."""
    world.add("m1")
    for name in HOSTS:
        world.add(name, spark_binds() if name == "w3" else [])
    fleet = Fleet(world, tmp_path, wheels(kept))
    racks = {"w1": "r1", "w2": "r2", "w3": "r3"}
    fleet.declare(["m1"], racks, ["w3"], workers_per_host=3, copies=3)
    fleet.play("install")
    again = fleet.play("install")
    assert set(again.changed.values()) == {0}, again.text
    assert hosts(fleet) == dict.fromkeys(HOSTS, (3, 3))
    job = Job(world.hosts["w3"], tmp_path)
    loses_a_host(fleet, job, 3)
    job.stop()
    fleet.declare(["m1"], racks, ["w3"], workers_per_host=3, copies=2)
    fleet.play("install")
    job = Job(world.hosts["w3"], tmp_path)
    loses_a_host(fleet, job, 2)

    drained = fleet.ask(world.hosts["w3"], "drain", "w1")
    assert "workers" in drained, drained
    assert sorted(each["name"] for each in drained["workers"]) == ["w1", "w1-2", "w1-3"]
    fleet.ask(world.hosts["w3"], "undrain", "w1")
    fleet.play("upgrade", "-e", "holdfast_restart=true")
    job.goes_on(1)
    fleet.declare(["m1"], racks, ["w3"], workers_per_host=2)
    fleet.play("install", good=False)
    job.stop()
    world.hosts["w1"].inside("systemctl", "stop", "holdfast-worker@2")
    refused = fleet.play("change_workers", "--limit", "w1", good=False)
    assert "start the worker first" in refused.text or "w1-2 is lost" in refused.text
    world.hosts["w1"].inside("systemctl", "start", "holdfast-worker@2")
    for number in (2, 4):
        fleet.declare(["m1"], racks, ["w3"], workers_per_host=number)
        fleet.play("change_workers", "--limit", "w1")
        assert hosts(fleet) == {"w1": (number, number), "w2": (3, 3), "w3": (3, 3)}
    fleet.play("remove_worker", "--limit", "w1")
    units = world.hosts["w1"].inside("systemctl", "list-units", "--plain", "--no-legend", "holdfast-worker@*")
    assert units.strip() == ""
    wait_until(lambda: set(hosts(fleet)) == {"w2", "w3"}, "the masters to see that they are gone", 90)


def hosts(fleet: Fleet) -> dict[str, tuple[int, int]]:
    """How many workers each host has that is not gone, and how many of them are alive."""
    listed = fleet.ask(fleet.world.hosts["w3"], "workers")["hosts"]
    return {each["host"]: (each["workers"], each["alive"]) for each in listed}


def loses_a_host(fleet: Fleet, job: Job, copies: int) -> None:
    """One of three hosts is gone without a word and comes back. The job goes on, with so many copies, or meanwhile with
    as many as there are hosts for."""
    host = fleet.world.hosts["w1"]
    job.goes_on(2)
    has_shuffles(fleet, placed=copies, asked=copies)
    host.kill()
    job.goes_on(1)
    wait_until(lambda: hosts(fleet)["w1"] == (3, 0), "the masters to miss the host", 90)
    has_shuffles(fleet, placed=2, asked=copies)
    host.boot()
    wait_until(lambda: hosts(fleet)["w1"] == (3, 3), "its workers to be back", 90)
    well(fleet)
    job.goes_on(1)


def has_shuffles(fleet: Fleet, placed: int, asked: int) -> None:
    """Wait for a shuffle that has so many copies of those that were asked for."""

    def found() -> bool:
        listed = fleet.ask(fleet.world.hosts["w3"], "shuffles")["shuffles"]
        return (placed, asked) in {(each["copies"], each["copies_wanted"]) for each in listed}

    wait_until(found, f"a shuffle with {placed} of {asked} copies", ROUND_SECONDS_MAX)


def test_five_hosts(world: World, tmp_path: Path, kept: Path) -> None:
    """Three masters and two workers are installed, serve a job, are upgraded, killed and replaced under it, which
    goes on and has every answer right; they are backed up, restored, taken away, and removed. What is so already
    changes nothing."""
    for name in (*MASTERS, "w1"):
        world.add(name)
    world.add("w2", spark_binds())
    fleet = Fleet(world, tmp_path, wheels(kept))
    fleet.declare(MASTERS, WORKERS, ["w2"])

    installs(fleet)
    job = Job(world.hosts["w2"], tmp_path)
    job.goes_on(2)
    assert fleet.ask(world.hosts["w2"], "shuffles")["total"] > 0
    upgrades(fleet, job)
    survives_kills(fleet, job)
    replaces_a_master(fleet, job)
    rounds = job.stop()
    restarts_what_hangs(fleet)
    print(f"{len(rounds)} rounds, the longest took {max(each['seconds'] for each in rounds)} s")
    goes_back(fleet)
    workers_come_and_go(fleet)
    removes(fleet)


@pytest.mark.parametrize("secured", [False, True], ids=["open", "secured"])
def test_one_host(world: World, tmp_path: Path, kept: Path, secured: bool) -> None:
    """The same in small, without security and with it: one master, one worker and Spark on one host, a job, a restart
    of all under it, another secret, and removal."""
    host = world.add("w1", spark_binds())
    fleet = Fleet(world, tmp_path, wheels(kept))
    fleet.declare(["w1"], {"w1": "r1"}, ["w1"], secured)
    if secured:
        fleet.make_secrets()
    first = fleet.play("install")
    assert ("no job starts without it" in first.text) == secured
    if secured:
        brings_sparks_token(fleet, host)
        endpoint = f"HOLDFAST_MASTERS={host.address}:7070"
        assert '"reachable": true' not in host.inside("env", endpoint, "holdfast", "status", "--json", check=False)
    again = fleet.play("install")
    assert set(again.changed.values()) == {0}, again.text
    job = Job(host, tmp_path)
    job.goes_on(1)
    assert fleet.ask(host, "shuffles")["total"] > 0
    fleet.play("upgrade", "-e", "holdfast_restart=true")
    job.goes_on(1)
    if secured:
        changes_the_secret(fleet, job)
    job.stop()
    removes(fleet)


def test_a_standalone_spark(world: World, tmp_path: Path, kept: Path) -> None:
    """A standalone Spark is set up beside three workers of Holdfast, and a job on the host of its master has executors
    on the three others. It goes on while an executor, a whole host and Spark's master are killed, with every answer
    right; in the end nothing is left of Spark's servers."""
    for name in ("m1", *HOSTS):
        world.add(name, spark_binds())
    fleet = Fleet(world, tmp_path, wheels(kept))
    everywhere = ("m1", *HOSTS)
    fleet.declare(["m1"], {"w1": "r1", "w2": "r2", "w3": "r3"}, everywhere, standalone=everywhere)
    fleet.play("install")
    fleet.play("spark_standalone", "--check")
    fleet.play("spark_standalone")
    again = fleet.play("spark_standalone")
    assert set(again.changed.values()) == {0}, again.text
    master = world.hosts["m1"]
    job = Job(master, tmp_path, f"spark://{master.address}:7077")
    job.goes_on(2)
    wait_until(lambda: executors(fleet) == {"m1": 0, "w1": 1, "w2": 1, "w3": 1}, "an executor on each host")
    has_shuffles(fleet, placed=2, asked=2)
    world.hosts["w1"].inside("pkill", "-9", "-f", EXECUTOR)
    job.goes_on(2)
    world.hosts["w2"].kill()
    job.goes_on(1)
    world.hosts["w2"].boot()
    wait_until(lambda: executors(fleet)["w2"] == 1, "an executor on the host that is back", ROUND_SECONDS_MAX)
    master.inside("pkill", "-9", "-f", "org.apache.spark.deploy.master.Master")
    job.goes_on(2)
    wait_until(lambda: sum(executors(fleet).values()) == 3, "three executors", ROUND_SECONDS_MAX)
    job.stop()
    fleet.play("uninstall", "-e", "holdfast_sure=trial", "-e", "holdfast_sure_of_data=delete-data")
    for host in world.hosts.values():
        assert host.inside("pgrep", "-f", "org.apache.spark", check=False).strip() == ""
        assert "No such file" in host.inside("ls", "/var/lib/holdfast-spark", check=False)


def executors(fleet: Fleet) -> dict[str, int]:
    """How many each host has."""
    found = {name: host.inside("pgrep", "-c", "-f", EXECUTOR, check=False) for name, host in fleet.world.hosts.items()}
    return {name: int(said) for name, said in found.items()}


def installs(fleet: Fleet) -> None:
    """Nothing is done in check mode, all is done once, and nothing the second time."""
    fleet.play("install", "--check")
    assert "holdfast" not in fleet.world.hosts["m1"].inside("ls", "/opt", "/etc")
    fleet.play("install")
    well(fleet)
    before = pids(fleet)
    again = fleet.play("install")
    assert set(again.changed.values()) == {0}, again.text
    assert pids(fleet) == before
    host = fleet.world.hosts["w1"]
    modes = host.inside("stat", "-c", "%n %a %U", "/etc/holdfast/secret", "/data1/holdfast", "/var/lib/holdfast")
    wanted = ["/etc/holdfast/secret 600 holdfast", "/data1/holdfast 700 holdfast", "/var/lib/holdfast 700 holdfast"]
    assert modes.split("\n")[:3] == wanted
    assert "serves, incarnation 1" in host.inside("systemctl", "status", "holdfast-worker@1")


def upgrades(fleet: Fleet, job: Job) -> None:
    """A new release reaches every server, one after the other, and the job goes on; the leader came last and had handed
    over. Nothing is left to do then."""
    before, led = pids(fleet), leader(fleet)
    done = fleet.play("upgrade", "-e", "holdfast_release=second")
    after = pids(fleet)
    assert all(before[name] != after[name] for name in before), (before, after)
    for name in before:
        exe = fleet.world.hosts[name].inside("cat", f"/proc/{after[name]}/cmdline")
        assert "/opt/holdfast/releases/second/" in exe
    restarted = [line.split("[")[1].split("]")[0] for line in _tasks(done.text, "Restart the master")]
    assert restarted[-1] == led
    assert len(restarted) == len(MASTERS)
    assert leader(fleet) != led
    job.goes_on()
    again = fleet.play("upgrade", "-e", "holdfast_release=second")
    assert set(again.changed.values()) == {0}, again.text
    assert pids(fleet) == after


def _tasks(text: str, name: str) -> list[str]:
    """The lines `changed: [host]` of a task, in their order."""
    found = []
    for block in text.split("\nTASK [")[1:]:
        if block.partition("]")[0].endswith(name):
            found += [line for line in block.splitlines() if line.startswith("changed:")]
    return found


def survives_kills(fleet: Fleet, job: Job) -> None:
    """The host of the leader, then one of a worker is gone without a word; each comes back by itself when its machine
    does."""
    for name in (leader(fleet), "w1"):
        host = fleet.world.hosts[name]
        host.kill()
        job.goes_on(1)
        host.boot()
        well(fleet)
    job.goes_on()


def is_new(fleet: Fleet, name: str, before: str) -> bool:
    """Whether the server of that host is another process than before."""
    return pids(fleet)[name] not in (before, "0")


def restarts_what_hangs(fleet: Fleet) -> None:
    """A worker and a master that stand still are ended and started again by the watchdog, with their stacks in the
    log."""
    for name, unit in (("w1", "holdfast-worker@1"), ("m1", "holdfast-master")):
        host, before = fleet.world.hosts[name], pids(fleet)[name]
        host.inside("kill", "-STOP", before)
        wait_until(partial(is_new, fleet, name, before), f"{unit} to be new", 120)
        journal = host.inside("journalctl", "--no-pager", "-o", "cat", "-u", unit)
        assert "Watchdog timeout" in journal
        assert "Fatal Python error: Aborted" in journal
    well(fleet)


def replaces_a_master(fleet: Fleet, job: Job) -> None:
    """A machine of the same name and address with nothing on it takes the place of a master; the job does not
    notice."""
    lost = fleet.world.hosts["m2"]
    lost.kill()
    lost.wipe()
    job.goes_on(1)
    lost.boot()
    fleet.play("replace_master", "-e", "holdfast_replace=m9", good=False)
    fleet.play("replace_master", "-e", "holdfast_replace=m2", "-e", "holdfast_release=second")
    well(fleet)
    job.goes_on(1)
    again = fleet.play("install", "-e", "holdfast_release=second")
    assert set(again.changed.values()) == {0}, again.text


def goes_back(fleet: Fleet) -> None:
    """A backup of the leader is on the control host; with it all masters go back, and workers find them again."""
    backups = fleet.directory / "backups"
    release = ("-e", "holdfast_release=second")
    fleet.play("backup", "-e", f"holdfast_backups={backups}", *release)
    (made,) = backups.iterdir()
    assert made.stat().st_mode & 0o777 == 0o600
    back = ("-e", f"holdfast_backup={made}", *release)
    fleet.play("restore", "-e", "holdfast_sure=other", *back, good=False)
    well(fleet)
    fleet.play("restore", "-e", "holdfast_sure=trial", *back)
    well(fleet)
    hashes = {
        (each["applied_index"], each["state_hash"]) for each in fleet.ask(fleet.world.hosts["w1"], "status")["masters"]
    }
    assert len({index for index, _ in hashes}) == len(hashes)


def workers_come_and_go(fleet: Fleet) -> None:
    """A worker that nobody needs is taken away; set up again it takes data."""
    release = ("-e", "holdfast_release=second")
    fleet.play("remove_worker", good=False)
    fleet.play("remove_worker", "--limit", "w1", *release)
    host = fleet.world.hosts["w1"]
    assert "inactive" in host.inside("systemctl", "is-active", "holdfast-worker@1", check=False)
    assert host.inside("ls", "/etc/holdfast").split() == []
    assert "identity" in host.inside("ls", "/data1/holdfast")
    fleet.play("add_worker", "--limit", "w1", *release)
    listed = fleet.ask(fleet.world.hosts["w1"], "workers")["workers"]
    assert {each["name"]: each["state"] for each in listed} == {"w1": "alive", "w2": "alive"}


def removes(fleet: Fleet) -> None:
    """Without the cluster's id nothing happens, with it the servers go and the data stays; it goes with a second
    word."""
    fleet.play("uninstall", "-e", "holdfast_sure=no", "-e", "holdfast_sure_of_data=no", good=False)
    well(fleet)
    fleet.play("uninstall", "-e", "holdfast_sure=trial", "-e", "holdfast_sure_of_data=no")
    host = fleet.world.hosts["w1"]
    assert "identity" in host.inside("ls", "/data1/holdfast")
    assert "No such file" in host.inside("ls", "/opt/holdfast", check=False)
    fleet.play("uninstall", "-e", "holdfast_sure=trial", "-e", "holdfast_sure_of_data=delete-data")
    assert "No such file" in host.inside("ls", "/data1/holdfast", check=False)
    assert host.inside("pgrep", "-f", "holdfast", check=False).strip() == ""
