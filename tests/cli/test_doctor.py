"""`holdfast doctor` names what is wrong with a set-up, and the remedy. The set-ups are broken for real: files, ports,
names, limits, servers; what a machine cannot be made to be is in tests/unit/client/test_doctor.py."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.config import config
from holdfast.common.config.config import Config
from holdfast.common.config.settings import Name, Port
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.common.system.ports import free_ports, outgoing_range
from holdfast.tools.cli.commands.doctor import Patient
from holdfast.tools.doctor.core.directories import check_directories
from holdfast.tools.doctor.core.findings import CODES, Symptom
from holdfast.tools.doctor.core.spark import DATA_IO, MANAGER, check_spark
from holdfast.tools.doctor.disks import gather_directories
from holdfast.tools.doctor.spark import gather_spark
from holdfast.worker.storage.identity import Identity
from tests.support.certificates import Authority, Certificate
from tests.support.machine import OF_THE_MACHINE
from tests.support.users import ordinary_user

COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", "doctor"]
SECONDS_MAX = 120.0
#: An address that leads nowhere (RFC 5737), as other machines have one.
ELSEWHERE = "198.51.100.1"


def worker(tmp_path: Path, worker: str = "", more: str = "", directories: str = "") -> Config:
    """The file of a worker on loopback in which all is well, with more lines below [worker], and more sections."""
    data, http = free_ports(2)
    listed = directories or f'{{ path = "{tmp_path}/data", capacity = "1GiB" }}'
    ports = "" if "_port" in worker else f"data_port = {data}\nhttp_port = {http}\n"
    text = f'[worker]\nname = "w1"\ndirectories = [{listed}]\n{ports}{worker}\n'
    text += "" if "masters =" in worker else 'masters = ["127.0.0.1:7070"]\n'
    return config.parse(text + more)


def master(tmp_path: Path, section: str = "", own: str = "127.0.0.1", others: str = "", more: str = "") -> Config:
    """The same of a master alone, or with two others."""
    http, grpc, raft = free_ports(3)
    listed = [f'{{ name = "m1", raft = "{own}:{raft}", http = "{own}:{http}" }}']
    listed += [
        f'{{ name = "{name}", raft = "{others}:7072", http = "{others}:7070" }}' for name in ("m2", "m3") if others
    ]
    name = "" if "name =" in section else 'name = "m1"\n'
    directory = "" if "directory =" in section else f'directory = "{tmp_path}/m1"\n'
    text = (
        f"[master]\n{name}{directory}http_port = {http}\ngrpc_port = {grpc}\npeers = [{', '.join(listed)}]\n{section}\n"
    )
    return config.parse(text + more)


def reported(found: Config) -> list[Symptom]:
    """What the doctor says of a host with this file, without asking any master."""
    return list(Patient(found, [], False, None).examine())


def test_the_workers_of_a_host_are_looked_at_together(tmp_path: Path) -> None:
    """With the files of two workers both are looked at, each finding says which it is of, and what they share is
    told."""
    first, other = worker(tmp_path / "1"), worker(tmp_path / "2")
    port = int(first.worker.data_port)
    other = replace(other, worker=replace(other.worker, name=Name("w1-2"), data_port=Port(port)))
    files = (tmp_path / "worker-1.toml", tmp_path / "worker-2.toml")
    for file, found in zip(files, (first, other), strict=True):
        file.write_text(config.render(found))
    said = list(Patient(first, [], False, None, files[0], ((files[1], other),)).examine())
    assert only(said, "port-twice").where == f"{files[1]}: worker.data_port"
    assert "of worker w1" in only(said, "one-device").what
    words = [word for file in files for word in ("--config", str(file))]
    done = subprocess.run(
        [*COMMAND, *words, "--json"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert "port-twice" in {each["code"] for each in json.loads(done.stdout)["findings"]}


def only(findings: list[Symptom], code: str) -> Symptom:
    """The first finding of that code; shows all of them if there is none."""
    named = [each for each in findings if each.code == code]
    assert named, findings
    return named[0]


def problems(findings: list[Symptom]) -> list[Symptom]:
    """What is wrong with the set-up, and not with the machine."""
    return [each for each in findings if each.level == "problem" and each.code not in OF_THE_MACHINE]


Build = Callable[[Path], Config]


def identity(path: Path, cluster: str, name: str) -> None:
    """Make a storage directory of that cluster and worker."""
    path.mkdir()
    whose = Identity(cluster_id=cluster, worker_name=name, worker_uid=bytes(16), directory_id=bytes(16))
    (path / "identity").write_bytes(whose.encode())


def foreign_cluster(tmp_path: Path) -> Config:
    identity(tmp_path / "data", "another", "w1")
    return worker(tmp_path)


def foreign_worker(tmp_path: Path) -> Config:
    identity(tmp_path / "data", "holdfast", "w9")
    return worker(tmp_path)


def damaged(tmp_path: Path) -> Config:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "identity").write_bytes(b"HFID" + bytes(50))
    return worker(tmp_path)


def open_to_all(tmp_path: Path) -> Config:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    return worker(tmp_path)


def a_file(tmp_path: Path) -> Config:
    (tmp_path / "data").write_text("not a directory")
    return worker(tmp_path)


def two(first: str, second: str) -> Build:
    """Two directories below the test's own."""

    def build(tmp_path: Path) -> Config:
        listed = f'{{ path = "{tmp_path}/{first}" }}, {{ path = "{tmp_path}/{second}" }}'
        return worker(tmp_path, directories=listed)

    return build


def secret(content: str | None, mode: int = 0o600) -> Build:
    """A master whose secret's file holds that."""

    def build(tmp_path: Path) -> Config:
        if content is not None:
            (tmp_path / "secret").write_text(content)
            (tmp_path / "secret").chmod(mode)
        more = f'[cluster]\nsecret_file = "{tmp_path}/secret"\n'
        return master(tmp_path, more=more)

    return build


#: Name of the set-up: how it is made, the code that must be found, words of the remedy.
SETUPS: dict[str, tuple[Build, str, str]] = {
    "more memory than the machine has": (lambda p: worker(p, 'memory = "10000GiB"'), "memory", "lower worker.memory"),
    "one port for data and HTTP": (
        lambda p: worker(p, "data_port = 21999\nhttp_port = 21999"),
        "port-twice",
        "a port of its own",
    ),
    "a port that outgoing connections take": (
        lambda p: worker(p, f"data_port = {outgoing_range()[0] + 7}\nhttp_port = {free_ports(1)[0]}"),
        "port-outgoing",
        "choose a port below",
    ),
    "an address of another machine to listen on": (
        lambda p: worker(p, f'bind = "{ELSEWHERE}"'),
        "bind-elsewhere",
        "an address of this machine",
    ),
    "a master's name that nobody knows": (
        lambda p: worker(p, 'masters = ["no-such-host.invalid:7070"]'),
        "name-unknown",
        "/etc/hosts",
    ),
    "an address that leads others to themselves": (
        lambda p: worker(p, f'bind = "0.0.0.0"\naddress = "localhost"\nmasters = ["{ELSEWHERE}:7070"]'),
        "name-loopback",
        "worker.address",
    ),
    "a worker on loopback, masters elsewhere": (
        lambda p: worker(p, f'masters = ["{ELSEWHERE}:7070"]'),
        "bind-loopback",
        'worker.bind to "0.0.0.0"',
    ),
    "a master's own entry on loopback": (
        lambda p: master(p, 'bind = "0.0.0.0"\naddress = "198.51.100.2"', others=ELSEWHERE),
        "name-loopback",
        "reach this machine",
    ),
    "a raft address of another machine": (
        lambda p: master(p, 'bind = "0.0.0.0"\naddress = "198.51.100.2"', own="198.51.100.2", others=ELSEWHERE),
        "raft-elsewhere",
        "an address of this machine",
    ),
    "a file where the directory should be": (a_file, "directory-unusable", "name a directory"),
    "a directory where nothing can be made": (
        lambda p: worker(p, directories='{ path = "/proc/holdfast" }'),
        "directory-unusable",
        "on a disk of this machine",
    ),
    "one directory twice": (two("data", "data"), "directory-twice", "take one of them out"),
    "a directory in another": (two("data", "data/more"), "directory-twice", "beside the other"),
    "two directories on one disk": (two("a", "b"), "one-device", "one directory on each disk"),
    "data of another cluster": (foreign_cluster, "directory-foreign", "an empty directory"),
    "data of another worker": (foreign_worker, "directory-foreign", "always belongs to one worker"),
    "a damaged identity": (damaged, "directory-damaged", "holdfast inspect"),
    "a directory that everybody may write": (open_to_all, "directory-open", "chmod 0700"),
    "more capacity than the disk": (
        lambda p: worker(p, directories=f'{{ path = "{p}/data", capacity = "100000TiB" }}'),
        "room",
        "lower capacity",
    ),
    "a master that is not in its own list": (lambda p: master(p, 'name = "m9"'), "peers", "in the list"),
    "a secret that is not there": (secret(None), "secret", "make it"),
    "a secret that is short": (secret("short"), "secret", "head -c 32"),
    "a secret that all may read": (secret("0123456789abcdef" * 2, 0o644), "secret", "chmod 0600"),
    "no secret over a network": (
        lambda p: master(p, 'bind = "0.0.0.0"\naddress = "198.51.100.2"', others=ELSEWHERE),
        "secret",
        "head -c 32",
    ),
}


@pytest.mark.parametrize("name", SETUPS)
def test_a_broken_set_up_is_named_with_its_remedy(name: str, tmp_path: Path):
    """Each of these set-ups is found out by name, with where it is and a remedy that fits it."""
    build, code, remedy = SETUPS[name]
    found = only(reported(build(tmp_path)), code)
    assert remedy in found.remedy, found
    assert found.where
    assert found.what


def test_a_sound_set_up_has_no_problem(tmp_path: Path):
    """A worker's and a master's file with nothing wrong give no problem at all."""
    for found in (worker(tmp_path), master(tmp_path)):
        assert problems(reported(found)) == []
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_named_with_who_has_it(tmp_path: Path):
    """A port that another process listens on is a problem, and that process is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = f"data_port = {taken.getsockname()[1]}\nhttp_port = {free_ports(1)[0]}"
        found = only(reported(worker(tmp_path, ports)), "port-held")
    assert str(os.getpid()) in found.what
    assert "another port" in found.remedy


def test_a_low_port_wants_a_permission(tmp_path: Path):
    """An ordinary user is told that it may not listen on a port below 1024, before the server is started."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if lowest <= 1:
        pytest.skip("this machine lets everybody listen everywhere")
    with ordinary_user():
        found = only(
            reported(worker(tmp_path, f"data_port = {lowest - 1}\nhttp_port = {free_ports(1)[0]}")), "port-forbidden"
        )
    assert "1024" in found.remedy


def test_a_directory_of_somebody_else_is_named(tmp_path: Path):
    """A directory that the user of the server may not write to is a problem, with the user's number in the remedy."""
    private = tmp_path / "private"
    private.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    with ordinary_user():
        setup = worker(tmp_path, directories=f'{{ path = "{private}/data" }}')
        found = only(reported(setup), "directory-unusable")
        assert f"uid {os.geteuid()}" in found.remedy


def test_a_disk_that_is_not_mounted_is_named(tmp_path: Path):
    """A directory below a mount point of /etc/fstab where nothing is mounted would fill another disk: a problem."""
    fstab = tmp_path / "fstab"
    fstab.write_text(f"# disks\n/dev/sdz1 {tmp_path}/disk ext4 defaults 0 2\n")
    setup = worker(tmp_path, directories=f'{{ path = "{tmp_path}/disk/holdfast" }}')
    found = only(list(check_directories(setup, gather_directories(setup, fstab))), "not-mounted")
    assert f"mount {tmp_path}/disk" in found.remedy


@pytest.mark.skipif(" /dev/shm tmpfs " not in Path("/proc/self/mounts").read_text(), reason="/dev/shm is no tmpfs")
def test_a_disk_that_is_memory_is_named(tmp_path: Path):
    """Data of a disk tier, and a master's journal, on a file system in memory are problems."""
    setup = worker(tmp_path, directories='{ path = "/dev/shm/holdfast-doctor", tier = "HDD" }')
    assert "on a disk" in only(reported(setup), "file-system").remedy
    setup = master(tmp_path, 'directory = "/dev/shm/holdfast-doctor"')
    assert "on a disk" in only(reported(setup), "file-system").remedy


def test_a_memory_tier_on_a_disk_is_named(tmp_path: Path):
    """A directory of tier MEMORY that lies on a disk is worth advice."""
    setup = worker(tmp_path, directories=f'{{ path = "{tmp_path}/data", tier = "MEMORY", capacity = "64MiB" }}')
    if gather_directories(setup)[0].file_system in ("tmpfs", "ramfs"):
        pytest.skip("temporary files are in memory here")
    assert "tmpfs" in only(reported(setup), "tier").remedy


def test_a_disk_that_swallows_syncs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where fdatasync returns without doing anything, as under eatmydata, the disk is called dishonest."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    setup = worker(tmp_path)
    if gather_directories(setup)[0].file_system in ("tmpfs", "ramfs"):
        pytest.skip("temporary files are in memory here")
    assert "power loss" in only(reported(setup), "sync-dishonest").remedy


def test_the_process_itself_is_looked_at():
    """Python without assertions, and a low limit of files, are found by a doctor that runs under them."""

    def low() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

    environ = {**os.environ, "PYTHONOPTIMIZE": "1"}
    environ.pop("HOLDFAST_MASTERS", None)
    done = subprocess.run([*COMMAND, "--json"], capture_output=True, text=True, env=environ, check=False, timeout=60)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [each["code"] for each in found["findings"]] == ["python-optimised"]
    assert "PYTHONOPTIMIZE" in found["findings"][0]["remedy"]
    code = (
        "from holdfast.tools.doctor.host import gather_host\n"
        "from holdfast.tools.doctor.core.host import check_host\n"
        "from holdfast.common.config.config import Config\n"
        "print([each.code for each in check_host(gather_host(), Config())])"
    )
    script = [sys.executable, "-P", "-c", code]
    limited = subprocess.run(script, capture_output=True, text=True, check=True, preexec_fn=low, timeout=60)
    assert limited.stdout.strip() == "['nofile']"


def test_wrong_usage_is_reported_in_a_sentence(tmp_path: Path):
    """A file that is not there, sets up nothing or cannot be read, and a user that does not exist, end with 2."""
    empty = tmp_path / "empty.toml"
    empty.write_text('[log]\nlevel = "INFO"\n')
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[worker]\nnaem = 3\n")
    for words, sentence in (
        (["--config", str(tmp_path / "none.toml")], "cannot read the configuration"),
        (["--config", str(empty)], "sets up neither a master nor a worker"),
        (["--config", str(wrong)], 'did you mean "name"'),
        (["--spark-conf", str(tmp_path / "none.conf")], "spark-defaults.conf"),
        (["--user", "no-such-user"], "there is no user no-such-user"),
    ):
        done = subprocess.run(COMMAND + words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2, done
        assert sentence in done.stderr


# Security.


def secured(tmp_path: Path, certificate: Certificate, authority: Authority, key: Certificate | None = None) -> Config:
    """A worker's file with [security], at 127.0.0.1."""
    where, own_key = certificate.files(tmp_path)
    if key is not None:
        _, own_key = key.files(tmp_path / "other")
    (tmp_path / "ca.pem").write_text(authority.pem)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    files = f'certificate = "{where}"\nkey_file = "{own_key}"\nca = "{tmp_path}/ca.pem"\n'
    return worker(tmp_path, more=f'[security]\nenabled = true\n{files}[cluster]\nsecret_file = "{secret}"\n')


def test_certificates_that_clients_would_not_take_are_named(tmp_path: Path):
    """Ended, of another CA, without the name, of another key, soon over: each is found by meeting it as clients do."""
    authority, other = Authority(), Authority("others")
    good = authority.issue("127.0.0.1", days=365)
    assert problems(reported(secured(tmp_path, good, authority))) == []
    for certificate, code, words in (
        (authority.issue("127.0.0.1", days=-1), "certificate", "expired"),
        (other.issue("127.0.0.1", days=365), "certificate", "refused"),
        (authority.issue("m1.example.org", days=365), "certificate-name", "127.0.0.1"),
        (authority.issue("127.0.0.1", days=3), "certificate-ends", "days"),
    ):
        found = only(reported(secured(tmp_path, certificate, authority)), code)
        assert words in found.what
        assert found.level == "problem"
    assert (
        only(reported(secured(tmp_path, authority.issue("127.0.0.1", days=20), authority)), "certificate-ends").level
        == "advice"
    )
    wrong_key = secured(tmp_path, good, authority, key=authority.issue("127.0.0.1"))
    assert "no pair" in only(reported(wrong_key), "certificate").what


def test_keys_and_secrets_that_others_read_are_named(tmp_path: Path):
    """A key with mode 0644, one that is missing, and no secret at all are problems before the server says so."""
    authority = Authority()
    setup = secured(tmp_path, authority.issue("127.0.0.1", days=365), authority)
    Path(setup.security.key_file).chmod(0o644)
    assert "chmod 0600" in only(reported(setup), "key-open").remedy
    Path(setup.security.key_file).unlink()
    assert "cannot read" in only(reported(setup), "certificate").what
    bare = replace(setup, cluster=replace(setup.cluster, secret_file=""))
    assert "docs/operate/security.md" in only(reported(bare), "secret").remedy


def test_tokens_of_clients_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A token that has ended, one that all may read, one variable alone: each is named, and no token is shown."""
    ca, path = tmp_path / "ca.pem", tmp_path / "token"
    ca.write_text(Authority().pem)
    keeper = Keeper(b"0123456789abcdef" * 2, "prod")
    monkeypatch.setenv("HOLDFAST_CA", str(ca))
    assert "go together" in only(list(Patient(None, [], False, None).examine()), "token").what
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(path))
    for begun, life, mode, code in ((1_000, 60, 0o600, "token"), (int(time.time()), 86_400 * 90, 0o644, "key-open")):
        path.write_text(keeper.mint(TokenKind.ADMIN, b"ops", begun, life))
        path.chmod(mode)
        found = only(list(Patient(None, [], False, None).examine()), code)
        assert path.read_text() not in f"{found}"
        path.chmod(0o600)


# Spark.

GOOD = {
    "spark.shuffle.manager": MANAGER,
    "spark.shuffle.sort.io.plugin.class": DATA_IO,
    "spark.holdfast.master.endpoints": "127.0.0.1:7070",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.sql.adaptive.localShuffleReader.enabled": "false",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
}
#: Name: settings that differ (None: left out), code, words of the remedy.
SPARK: dict[str, tuple[dict[str, str | None], str, str]] = {
    "Spark's own manager": ({"spark.shuffle.manager": None}, "spark-manager", "spark-conf"),
    "no endpoints": ({"spark.holdfast.master.endpoints": None}, "spark-endpoints", "master.endpoints=host:port"),
    "endpoints that are none": ({"spark.holdfast.master.endpoints": "here"}, "spark-key", "docs/use/spark.md"),
    "a slip of the pen": ({"spark.holdfast.replicaton": "2"}, "spark-key", "write spark.holdfast.replication"),
    "a CA without a token": ({"spark.holdfast.security.ca": "/etc/ca.pem"}, "spark-key", "security.tokenFile"),
    "six copies": ({"spark.holdfast.replication": "6"}, "spark-key", "docs/use/spark.md"),
    "a jar that is not there": ({"spark.jars": "/nowhere/holdfast.jar"}, "spark-jar", "holdfast spark-jar"),
    "no jar at all": ({"spark.jars": None}, "spark-jar", "name it there"),
    "other packages only": (
        {"spark.jars": None, "spark.jars.packages": "org.other:thing:1.0"},
        "spark-jar",
        "name it there",
    ),
    "Spark's shuffle service with nothing to serve": (
        {"spark.shuffle.service.enabled": "true", "spark.holdfast.fallback": "never"},
        "spark-conflict",
        "spark.shuffle.service.enabled=false",
    ),
    "a fallback onto executors that leave": (
        {"spark.dynamicAllocation.enabled": "true"},
        "spark-conflict",
        "set spark.holdfast.fallback=never; or to let shuffles fall back",
    ),
    "adaptive local reads": ({"spark.sql.adaptive.localShuffleReader.enabled": None}, "spark-conflict", "=false"),
    "Java's serializer": ({"spark.serializer": None}, "spark-conflict", "KryoSerializer"),
    "executors that come and go": (
        {"spark.shuffle.sort.io.plugin.class": None, "spark.dynamicAllocation.enabled": "true"}
        | {"spark.holdfast.fallback": "never"},
        "spark-conflict",
        DATA_IO,
    ),
}


def spark_file(tmp_path: Path, changes: dict[str, str | None]) -> Path:
    """A spark-defaults.conf in which all is well but for the changes."""
    jar = tmp_path / "holdfast.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("org/apache/spark/shuffle/holdfast/HoldfastShuffleManager.class", b"")
    settings = {**GOOD, "spark.jars": str(jar), "spark.pyspark.python": sys.executable, **changes}
    file = tmp_path / "spark-defaults.conf"
    lines = [f"{key} {value}" for key, value in settings.items() if value is not None]
    file.write_text("# what is said of Spark\n" + "\n".join(lines) + "\n")
    return file


def program(path: Path, script: str) -> Path:
    """A program that answers as told."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def judged(file: Path, environ: dict[str, str]) -> list[Symptom]:
    """What the doctor says of these settings, with a Java that is new enough unless the environment says otherwise."""
    return list(check_spark(gather_spark(file, environ), None))


@pytest.fixture
def java(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java 17."""
    home = tmp_path / "java17"
    program(home / "bin" / "java", "echo 'openjdk version \"17.0.9\" 2023-10-17' >&2")
    return {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("name", SPARK)
def test_wrong_settings_of_spark_are_named(name: str, tmp_path: Path, java: dict[str, str]):
    """Each wrong setting is found out by name, with what to set instead."""
    changes, code, remedy = SPARK[name]
    assert remedy in only(judged(spark_file(tmp_path, changes), java), code).remedy


def test_right_settings_of_spark_have_no_problem(tmp_path: Path, java: dict[str, str]):
    """Settings as `holdfast spark-conf` prints them give nothing to say."""
    assert judged(spark_file(tmp_path, {}), java) == []
    served = dict.fromkeys(("spark.dynamicAllocation.enabled", "spark.shuffle.service.enabled"), "true")
    assert judged(spark_file(tmp_path, {**served}), java) == [], "what falls back is in Spark's shuffle service"


def test_java_and_pythons_are_tried(tmp_path: Path, java: dict[str, str]):
    """No Java, an old one, a Python that is not there, and one of another release are named, each by running it."""
    file = spark_file(tmp_path, {})
    assert "JAVA_HOME" in only(judged(file, {"JAVA_HOME": "/nowhere"}), "java").remedy
    program(tmp_path / "java11" / "bin" / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    assert "Java 11" in only(judged(file, {"JAVA_HOME": str(tmp_path / "java11")}), "java").what
    file = spark_file(tmp_path, {"spark.pyspark.python": None})
    missing = only(judged(file, {**java, "PYSPARK_PYTHON": "no-such-python"}), "pyspark-python")
    assert "set PYSPARK_PYTHON" in missing.remedy
    other = program(tmp_path / "python", "echo 2.7 False")
    found = only(
        judged(file, {**java, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(other)}), "pyspark-python"
    )
    assert "Python 2.7" in found.what


def test_python_workers_need_holdfast_without_the_plug_in_only(tmp_path: Path, java: dict[str, str]):
    """A Python of the workers that cannot import Holdfast is advice where no jar shuffles, and nothing with the jar."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    bare = program(tmp_path / "python", f"echo {here} False")
    environ = {**java, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(bare)}
    changes: dict[str, str | None] = {"spark.pyspark.python": None}
    assert judged(spark_file(tmp_path, changes), environ) == []
    jarless = judged(spark_file(tmp_path, {**changes, "spark.shuffle.manager": None}), environ)
    assert only(jarless, "pyspark-python").level == "advice"


def test_a_python_without_pyspark_is_no_drivers(tmp_path: Path, java: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """Where the Python of `holdfast` has no PySpark and none is named, drivers and workers run with `python3`."""
    program(tmp_path / "bin" / "python3", "echo 3.99 False")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert judged(spark_file(tmp_path, {"spark.pyspark.python": None}), java) == []


@pytest.mark.skipif(not os.path.isdir(os.path.join(sys.prefix, "lib")), reason="no environment")
def test_a_jar_for_another_spark_is_named(tmp_path: Path, java: dict[str, str]):
    """A jar whose name says another line of Spark than the installed one is a problem."""
    pytest.importorskip("pyspark")
    file = spark_file(tmp_path, {})
    named = tmp_path / "holdfast-spark-3.4.0_2.12-0123456789abcdef.jar"
    (tmp_path / "holdfast.jar").rename(named)
    file.write_text(file.read_text().replace(str(tmp_path / "holdfast.jar"), str(named)))
    assert "compiled for Spark 3.4" in only(judged(file, java), "spark-jar").what


def test_every_code_is_documented():
    """docs/operate/doctor.md names every code that the doctor may say, and no other."""
    text = (Path(__file__).parents[2] / "docs" / "operate" / "doctor.md").read_text("utf-8")
    listed = re.findall(r"^\|`([a-z-]+)`\|\S", text, re.MULTILINE)
    assert sorted(listed) == sorted(code for group in CODES.values() for code in group)
