"""`pip install holdfast` is the client: a push and a read work with it, and no server library is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.client import local_cluster
from tests.packaging import bare

#: In an environment without anything else; -S leaves out this interpreter's own site-packages.
PUSH_AND_READ = """
import json, sys
site, endpoints = sys.argv[1:]
sys.path.append(site)
from holdfast.client import Session
with Session(endpoints, app="bare") as session:
    shuffle = session.register_reduce_shuffle(4, 2)
    statuses = []
    for number in range(2):
        with shuffle.writer(number) as writer:
            for partition in range(4):
                writer.write(partition, b"%d of %d" % (partition, number))
            statuses.append(writer.close())
    shuffle.commit(statuses)
    read = sorted((each.partition, bytes(each.payload).decode()) for each in shuffle.reader(range(4)))
print(json.dumps({"read": read, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""
SERVER_LIBRARIES = {"aiohttp", "click", "grpc", "jinja2", "lmdb", "prometheus_client", "psutil", "pysyncobj", "rich"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Python without site-packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", *words], check=False, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bare environment."""
    return bare.make(tmp_path_factory.mktemp("bare"))


def test_two_distributions_are_brought() -> None:
    """The client asks for a checksum and for protobuf, and these ask for nothing more."""
    assert bare.needed("holdfast") == {"crc32c", "protobuf"}


def test_a_push_and_a_read_need_no_server_library(site: Path, tmp_path: Path) -> None:
    """A session of the bare client pushes, commits and reads every record; no library of servers is imported or there
    to be imported."""
    with local_cluster(1, 1, dir=tmp_path / "cluster") as cluster:
        done = run("-c", PUSH_AND_READ, str(site), cluster.endpoints)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["read"] == sorted([p, f"{p} of {m}"] for p in range(4) for m in range(2))
    assert SERVER_LIBRARIES.isdisjoint(found["modules"])
    assert SERVER_LIBRARIES.isdisjoint(path.name for path in site.iterdir())


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("holdfast.tools", (), "tools"),
        ("holdfast.master", ("--config", "x"), "server"),
        ("holdfast.worker", ("--config", "x"), "server"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(site: Path, module: str, words: tuple[str, ...], extra: str) -> None:
    """A command or a server whose extra is not installed says which to install, and no traceback."""
    program = f"import runpy, sys; sys.path.append({str(site)!r}); sys.argv[1:] = {list(words)}"
    done = run("-c", f"{program}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"'.[{extra}]'" in done.stderr
