"""What the doctor makes of facts that no test machine can be made to have; the rest is broken for real in
tests/cli/test_doctor.py and test_doctor_cluster.py."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.agreement import secret_digest, settings_digests
from holdfast.common.config.config import Config, from_tables
from holdfast.common.limits import GIB
from holdfast.tools.doctor.core.cluster import check_masters, check_versions, check_workers
from holdfast.tools.doctor.core.directories import check_directories
from holdfast.tools.doctor.core.facts import (
    Clock,
    Cluster,
    DirectoryFact,
    Host,
    MasterFact,
    MountFact,
    NameFact,
    WorkerFact,
    WorkerHere,
)
from holdfast.tools.doctor.core.findings import CODES
from holdfast.tools.doctor.core.host import check_host, check_names
from holdfast.tools.doctor.core.spark import KEYS, parse_settings
from holdfast.tools.doctor.core.workers import check_workers_here

ROOT = Path(__file__).parents[3]
OWN = {"holdfast": "0.4.0", "protocol": "1", "python": "3.11.9", "pyarrow": "20.0.0", "disk": "1"}
DISK = DirectoryFact(
    setting="worker.directories[0]",
    path="/data",
    tier="SSD",
    file_system="ext4",
    size_bytes=1 << 40,
    free_bytes=1 << 39,
    inodes=1 << 20,
    inodes_free=1 << 19,
    sync_us=400.0,
)
MASTERS = tuple(
    MasterFact(
        address=f"m{number}:7070",
        name=f"m{number}",
        cluster_id="prod",
        leads=number == 1,
        version="0.4.0",
        versions=OWN,
        settings={"lease": "aa", "secret": "1234"},
        peers=(("m1", "m1:7070"), ("m2", "m2:7070"), ("m3", "m3:7070")),
        clock=Clock(0.01, 0.005),
    )
    for number in (1, 2, 3)
)
WORKER = WorkerFact(
    name="w1", host="h1", data_address="w1:7080", http_address="w1:7081", state="alive", version="0.4.0", versions=OWN
)


def cluster(**changes: object) -> Cluster:
    """Three masters, the third one changed, and a worker."""
    return Cluster(masters=(*MASTERS[:2], replace(MASTERS[2], **changes)), workers=(WORKER,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "code", "remedy"),
    [
        ({"file_system": "nfs4"}, "file-system", "[dfs]"),
        ({"file_system": "overlay"}, "file-system", "mount a volume"),
        ({"sync_us": 4.0}, "sync-dishonest", "cache=unsafe"),
        ({"sync_us": 300_000.0}, "sync-slow", "SSD"),
        ({"sync_us": 300_000.0, "tier": ""}, "sync-slow", "SSD"),
        ({"free_bytes": 1 << 30}, "room", "worker.disk_reserve"),
        ({"free_bytes": 1 << 20, "tier": ""}, "room", "free"),
        ({"inodes_free": 10}, "inodes", "inodes"),
    ],
)
def test_a_disk_is_judged_by_its_facts(changes: dict, code: str, remedy: str):
    """File systems that forget or lie, syncs that are too quick or slow, and disks without room are named."""
    found = list(check_directories(Config(), [replace(DISK, **changes)]))
    assert [each.code for each in found] == [code]
    assert remedy in found[0].remedy


def test_a_good_disk_is_left_alone():
    """An SSD with room gives nothing to say; two on different devices neither."""
    second = replace(DISK, path="/data2", device=2)
    assert list(check_directories(Config(), [replace(DISK, device=1), second])) == []


@pytest.mark.parametrize(
    ("changes", "code", "level"),
    [
        ({"version": "0.3.2"}, "version-differs", "advice"),
        ({"version": "0.2.0"}, "version-differs", "problem"),
        ({"version": "1.4.0"}, "version-differs", "problem"),
        ({"version": "0.3.0", "versions": {**OWN, "protocol": "2"}}, "protocol-differs", "problem"),
        ({"versions": {**OWN, "raft": "2"}}, None, None),
        ({"versions": {**OWN, "python": "3.12.1"}}, "library-differs", "advice"),
        ({"versions": {**OWN, "python": "3.11.2"}}, None, None),
        ({"versions": {}}, None, None),
    ],
)
def test_versions_are_compared(changes: dict, code: str | None, level: str | None):
    """The release before may run beside this one; older ones, other protocols and Pythons are named; patches pass."""
    found = list(check_versions(cluster(**changes), OWN))
    assert [(each.code, each.level) for each in found] == ([(code, level)] if code else [])


def test_formats_that_only_servers_know_are_compared_among_them():
    """The one master of three with another version of Raft's wire is named, though a client does not know the right."""
    masters = tuple(replace(each, versions={**OWN, "raft": "2" if each.name == "m3" else "1"}) for each in MASTERS)
    (found,) = check_versions(Cluster(masters=masters), OWN)
    assert found.code == "protocol-differs"
    assert found.where == "master m3"


@pytest.mark.parametrize(("ahead", "level"), [(0.9, None), (-3.0, "advice"), (40.0, "problem")])
def test_clocks_are_judged_by_how_far_they_are_off(ahead: float, level: str | None):
    """A second may be; more is advice, and what leases and certificates bear is the bound of a problem."""
    found = list(check_masters(cluster(clock=Clock(ahead, 0.1)), None, None))
    assert [each.level for each in found] == ([level] if level else [])


def test_workers_with_another_store_are_named():
    """Workers of two DFS stores, and masters that clean another one than is used, are problems."""
    other = replace(WORKER, name="w2", dfs_url="s3://shuffle/prod")
    found = list(check_workers(Cluster(masters=MASTERS, workers=(WORKER, other)), None))
    assert [each.code for each in found] == ["dfs-differs", "dfs-differs"]


def test_a_worker_that_is_not_believed_needs_no_firewall_opened():
    """A certificate that clients refuse is told as that, not as ports that cannot be reached."""
    odd = replace(WORKER, certificate_refused="certificate has expired")
    (found,) = check_workers(Cluster(masters=MASTERS, workers=(odd,)), None)
    assert (found.code, "expired" in found.what, "firewall" in found.remedy) == ("certificate", True, False)


def test_masters_are_not_blamed_for_a_store_that_a_token_does_not_show():
    """Seen with a user's token masters tell no DFS, which is not taken for none."""
    stored = replace(WORKER, dfs_url="s3://shuffle/prod")
    assert list(check_workers(Cluster(masters=MASTERS, workers=(stored,), seen_as="user"), None)) == []


def test_a_name_that_must_be_known_elsewhere_is_advised():
    """A worker that listens everywhere and says no address tells its machine's name, which others may not know."""
    config = from_tables(
        {"worker": {"bind": "0.0.0.0", "masters": ["m1:7070"], "directories": [{"path": "/data"}]}}, "test"
    )
    names = {"m1": NameFact(host="m1", addresses=("10.0.0.1",)), "box": NameFact(host="box", addresses=("10.0.0.9",))}
    (found,) = check_names(config, Host(name="box"), names)
    assert found.code == "address-missing"
    assert "worker.address" in found.remedy


@pytest.mark.parametrize(("first", "words"), [(20_000, "has 20000 itself"), (1 << 20, "deploy/ansible")])
def test_a_limit_of_files_is_raised_where_it_is_set(first: int, words: str):
    """Where the whole host is held to few files the remedy is not the unit, which asks for more already."""
    host = Host(name="h", nofile=20_000, nofile_of="the server, process 7", nofile_first=first)
    (found,) = check_host(host, from_tables({}, "test"))
    assert (found.code, found.level) == ("nofile", "advice")
    assert words in found.remedy


def here(*devices: int, name: str = "w1", memory: int = 0) -> WorkerHere:
    """A worker of this host with a directory on each of these devices."""
    return WorkerHere(name=name, memory_bytes=memory, disks=tuple((f"/data{each}", each) for each in devices))


@pytest.mark.parametrize(
    ("cores", "workers", "fit"),
    [
        (16, [here(1, 2, 3, 4)], 4),
        (15, [here(1, 2, 3, 4)], 3),
        (64, [here(1, 2), here(3, name="w1-2")], 3),
        (64, [here(1)], None),
        (7, [here(1, 2, 3)], None),
        (8, [here(1), here(2, name="w1-2")], None),
        (64, [], None),
    ],
)
def test_cores_that_are_left_over_are_told(cores: int, workers: list[WorkerHere], fit: int | None):
    """One worker for each four cores and no more than disks, as the playbooks reckon; where there are fewer, advice."""
    found = list(check_workers_here(Host(name="box", cores=cores), workers))
    assert [each.code for each in found] == ["cores-left"] * (fit is not None)
    assert all(f": {fit} would use them" in each.what and "holdfast_workers_per_host" in each.remedy for each in found)


def test_disks_that_are_left_over_or_shared_are_told():
    """A disk on which no worker of this host has a directory, and one on which two workers have some."""
    host = Host(name="box", mounts=(MountFact("/data1", 1, 1 << 40), MountFact("/data9", 9, 1 << 40)))
    found = list(check_workers_here(host, [here(1, 2), here(2, name="w1-2")]))
    assert [(each.code, each.where, each.level) for each in found] == [
        ("one-device", "worker w1-2 /data2", "advice"),
        ("disk-left", "/data9", "advice"),
    ]
    assert "of worker w1" in found[0].what


def test_memory_of_all_workers_of_a_host_is_added_up():
    """Each fits by itself, both together do not; what is not known of a worker counts nothing."""
    workers = [here(1, memory=5 * GIB), here(2, name="w1-2", memory=5 * GIB), here(3, name="w1-3")]
    (found,) = check_workers_here(Host(name="box", memory_bytes=8 * GIB), workers)
    assert (found.code, found.level, found.where) == ("memory", "problem", "worker w1, w1-2")
    (found,) = check_workers_here(Host(name="box", memory_bytes=12 * GIB), workers)
    assert found.level == "advice"
    assert not list(check_workers_here(Host(name="box", memory_bytes=13 * GIB), workers))


def test_a_dfs_without_its_library_is_named():
    """[dfs] in the file and no pyarrow installed is a problem, with what to install."""
    (found,) = check_host(Host(name="box"), from_tables({"dfs": {"url": "s3://bucket/prefix"}}, "test"))
    assert found.code == "library"
    assert "holdfast[dfs]" in found.remedy


def test_digests_find_what_masters_must_have_the_same_and_tell_no_secret():
    """Any key of a shared section changes its digest and no other; paths of secrets and names of keys change none."""
    plain = settings_digests(Config())
    changed = settings_digests(
        from_tables({"lease": {"application": "11m"}, "worker": {"return_grace": "31s"}}, "test")
    )
    assert {name for name in plain if plain[name] != changed[name]} == {"lease", "worker.return_grace"}
    store = {"url": "s3://bucket/prefix", "access_key": "a", "secret_key_file": "/a"}
    other = settings_digests(from_tables({"dfs": {**store, "access_key": "b", "secret_key_file": "/b"}}, "test"))
    assert settings_digests(from_tables({"dfs": store}, "test")) == other
    assert len(secret_digest(b"0123456789abcdef", "prod")) == 4
    assert secret_digest(b"0123456789abcdef", "prod") != secret_digest(b"0123456789abcdeg", "prod")


def test_the_keys_of_the_plug_in_are_those_of_its_source():
    """The doctor knows exactly the keys that HoldfastConf.java reads, those of its SecurityFiles included."""
    source = ROOT / "client/jvm/src/main/java/org/apache/spark/shuffle/holdfast/HoldfastConf.java"
    text = source.read_text("utf-8")
    read = re.findall(r'\b(?:read\.)?(?:text|word|truth|number|part|bytes|time|isSet)\("([A-Za-z_.]+)"', text)
    files = source.with_name("SecurityFiles.java").read_text("utf-8")
    read += re.findall(r'static final String \w+ = "(security\.\w+)"', files)
    assert set(read) | {"fetch.region"} == set(KEYS)


def test_copies_that_are_missing_are_a_problem_of_the_leader():
    """Only who leads says how many epochs have fewer copies than asked for; `under-replicated` tells it once."""
    masters = tuple(replace(each, under_replicated=7) for each in MASTERS)
    (found,) = check_workers(Cluster(masters=masters, workers=(WORKER,)), None)
    assert (found.code, found.level) == ("under-replicated", "problem")
    assert "7 epochs" in found.what
    assert "seal" not in found.remedy, "nobody will"
    masters = tuple(replace(each, awaited=5) for each in masters)
    away = replace(WORKER, name="w9", state="lost")
    found = list(check_workers(Cluster(masters=masters, workers=(away,)), None))[-1]
    assert "of 5 the missing copies are sealed" in found.what
    assert "2 stay so" in found.what
    assert "start the lost workers (w9)" in found.remedy
    assert "run again" in found.remedy


def test_settings_of_spark_are_read_as_spark_reads_them():
    """Keys and values may be parted by blanks, = or :, comments and empty lines are nothing, the last one counts."""
    text = "# a comment\n\nspark.a  1\nspark.b=2\nspark.c: 3 4\nspark.a\t5\nspark.d\n"
    assert parse_settings(text) == {"spark.a": "5", "spark.b": "2", "spark.c": "3 4", "spark.d": ""}


def test_every_code_is_provoked_by_a_test():
    """Each code that the doctor knows stands in one of its tests, so that none is without a set-up that shows it."""
    cli = ("tests/cli/test_doctor.py", "tests/cli/test_doctor_cluster.py", "tests/cli/test_doctor_job.py")
    files = (*cli, "tests/unit/client/test_doctor.py")
    text = "".join((ROOT / name).read_text("utf-8") for name in files)
    assert [code for group in CODES.values() for code in group if not re.search(rf"[\"' ]{code}[\"':]", text)] == []
