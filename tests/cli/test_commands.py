"""The command line as people and scripts meet it: what it prints and returns, and what it says when misused."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.benches.figures import Figure
from holdfast.tools.cli import main
from holdfast.tools.cli.commands.bench import draw
from holdfast.tools.cli.main import COMMANDS
from holdfast.tools.cli.output import escape, show, table
from tests.cli.test_bundle import unpacked
from tests.support.waiting import wait_until

COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main"]
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers that the tests of this file share."""
    with local_cluster(masters=3, workers=2, dir=tmp_path_factory.mktemp("cli")) as started:
        yield started


def run(*words: object, masters: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command line to its end."""
    environ = {name: value for name, value in os.environ.items() if name != "HOLDFAST_MASTERS"}
    if masters:
        environ["HOLDFAST_MASTERS"] = masters
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=SECONDS_MAX)


def document(done: subprocess.CompletedProcess[str], exit_status: int = 0) -> dict:
    """The one JSON document that the command printed."""
    assert done.returncode == exit_status, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def register(cluster: LocalCluster, name: str) -> tuple[bytes, bytes]:
    """Register an application with one shuffle; returns its instance and the holder of its lease."""

    async def call() -> bytes:
        async with ControlClient(cluster.endpoints) as client:
            instance = os.urandom(16)
            application = pb.RegisterApplicationRequest(instance=instance, name=name, user="tester", holder=instance)
            await client.call("Shuffles/RegisterApplication", application)
            key = pb.ShuffleKey(instance=instance, shuffle=7, generation=0)
            shuffle = pb.RegisterShuffleRequest(
                key=key, kind=pb.PARTITION_KIND_MAP, partitions=5, maps=2, ack=1, holder=instance
            )
            await client.call("Shuffles/RegisterShuffle", shuffle)
            return instance

    instance = asyncio.run(call())
    return instance, instance


def test_help_lists_every_command_and_loads_little():
    """--help names all commands without importing gRPC, protobuf, Arrow or rich, so that it is fast."""
    code = (
        "import sys\nfrom holdfast.tools.cli.main import run\nrun(['--help'])\n"
        "print([name for name in ('grpc', 'google.protobuf', 'pyarrow', 'rich', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, "drill leader", "drill masters", "drill worker", "drill spark"])
def test_every_command_explains_itself(command: str):
    """Each command has --help of its own, which leaves with 0."""
    done = run(*command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: holdfast " + command.split(maxsplit=1)[0] in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["status"], "HOLDFAST_MASTERS"),
        (["status", "--masters", "nonsense"], "host:port"),
        (["nothing"], "nothing"),
        (["workers", "--mastres", "x"], "--mastres"),
        (["placement", "--masters", "127.0.0.1:1", "xyz"], "APP/SHUFFLE"),
        (["local", "--masters", "2"], "1, 3 or 5 masters"),
        (["local", "--workers", "many"], "many"),
        (["local", "--workers", "2", "--hosts", "2"], "not both"),
        (["local", "--dir", "/dev/null"], "/dev/null"),
        (["placement", "x/9999999999", "--masters", "127.0.0.1:1"], "9999999999"),
        (["forget", "x/7/1", "--masters", "127.0.0.1:1"], "write x/7"),
        (["forget", "--masters", "127.0.0.1:1"], "APP[/SHUFFLE]"),
        (["export", "nightly", "--to", "nowhere", "--masters", "127.0.0.1:1"], "APP/SHUFFLE/GENERATION"),
        (["master", "--config", "missing.toml"], "missing.toml"),
        (["worker"], "--config"),
        (["inspect", "missing"], "missing"),
        (["verify", "missing"], "missing"),
        (["bench", "luck"], "luck"),
        (["drill", "nobody"], "nobody"),
        (["drill", "leader", "--count", "0"], "--count"),
        (["drill", "leader", "--masters", "1"], "--masters"),
        (["drill", "masters", "--masters", "4"], "1, 3 or 5 masters"),
        (["drill", "masters", "--masters", "5", "--inventory", "staging.toml"], "--masters is for the embedded"),
        (["top", "--interval", "nan", "--masters", "127.0.0.1:1"], "--interval"),
        (["drill", "disk-slow", "--seconds", "inf"], "--seconds"),
        (["shuffles", "--limit", "-1", "--masters", "127.0.0.1:1"], "--limit"),
        (["handover", "--to", os.fsdecode(b"a\xff"), "--masters", "127.0.0.1:1"], "not text in UTF-8"),
        (["status", "--masters", "127.0.0.1:٧"], "host:port"),
    ],
)
def test_misuse_is_reported_in_a_sentence(words: list[str], sentence: str):
    """Wrong usage leaves with 2 and one line that names what is wrong; with --json it is a document, too."""
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    if words[0] not in ("master", "worker"):
        assert sentence in document(run(*words, "--json"), 2)["error"]


def test_a_file_that_cannot_be_is_reported_in_a_sentence(tmp_path: Path):
    """A name that is too long and a folder that is not there: one line with both, and no traceback."""
    for words in (["verify", "x" * 5_000], ["bench", "--dir", tmp_path / "none", "latency"]):
        done = run(*words)
        assert done.returncode in (1, 2)
        assert str(words[-1] if words[0] == "verify" else words[2]) in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_a_terminal_that_does_not_know_a_letter_is_shown_its_number(cluster: LocalCluster):
    """Names of applications are any text; a terminal that is no UTF-8 ended the command with a traceback."""
    instance, _ = register(cluster, "漢字")
    command = [*COMMAND, "apps", "--masters", cluster.endpoints]
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, check=False, capture_output=True, env=environ, timeout=SECONDS_MAX)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u6f22\u5b57" in done.stdout
    assert instance.hex()[:8].encode() in done.stdout


@pytest.mark.parametrize("role", ["master", "worker"])
def test_servers_refuse_a_wrong_file(role: str, tmp_path: Path):
    """`master` and `worker` leave with 2 and say which key is wrong."""
    file = tmp_path / "holdfast.toml"
    file.write_text('[cluster]\nidd = "x"\n', encoding="utf-8")
    done = run(role, "--config", file)
    assert done.returncode == 2
    assert "idd" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_of_a_healthy_cluster(cluster: LocalCluster):
    """`status` tells leader, masters with equal state and living workers, and leaves with 0."""
    said = document(run("status", "--json", masters=cluster.endpoints))
    assert said["healthy"] is True
    assert said["leader"] == cluster.leader().address
    assert sorted(master["name"] for master in said["masters"]) == ["m1", "m2", "m3"]
    assert (said["workers"], said["workers_alive"]) == (2, 2)
    drawn = run("status", masters=cluster.endpoints)
    assert drawn.returncode == 0
    assert all(master.address in drawn.stdout for master in cluster.masters)


def test_status_tells_bad_news(tmp_path: Path):
    """With one master dead `status` leaves with 1 and names it; with two dead it says that none leads."""
    with local_cluster(masters=3, workers=0, dir=tmp_path) as cluster:
        dead = [master for master in cluster.masters if master is not cluster.leader()]
        dead[0].kill()
        said = document(run("status", "--json", masters=cluster.endpoints), 1)
        assert any(dead[0].address in problem for problem in said["problems"])
        assert said["leader"]
        dead[1].kill()
        wait_until(
            lambda: any("there is no leader" in one for one in _problems(cluster)), "the last master to step down"
        )


def _problems(cluster: LocalCluster) -> list[str]:
    problems: list[str] = document(run("status", "--json", masters=cluster.endpoints), 1)["problems"]
    return problems


def test_workers_are_listed(cluster: LocalCluster):
    """`workers` lists both workers with their directories; with --rack only those of that rack."""
    found = document(run("workers", "--json", "--masters", cluster.endpoints))["workers"]
    said = sorted(found, key=lambda one: one["name"])
    assert [(one["name"], one["state"], one["data_address"]) for one in said] == [
        (worker.name, "alive", worker.address) for worker in cluster.workers
    ]
    assert all(one["directories"][0]["healthy"] for one in said)
    assert "w2" in run("workers", masters=cluster.endpoints).stdout
    of_rack = document(run("workers", "--rack", "default-rack", "--json", masters=cluster.endpoints))
    assert [one["place"] for one in of_rack["workers"]] == ["/default-region/default-rack"] * 2
    assert document(run("workers", "--rack", "r", "--rack", "q", "--json", masters=cluster.endpoints))["workers"] == []


def test_shuffles_and_forget(cluster: LocalCluster):
    """`shuffles` lists what was registered; `forget` drops one shuffle, then the application, then finds nothing."""
    instance, _ = register(cluster, "to-be-forgotten")
    said = document(run("shuffles", "--json", masters=cluster.endpoints))
    (found,) = [one for one in said["shuffles"] if one["instance"] == instance.hex()]
    assert (found["application"], found["shuffle"], found["state"]) == ("to-be-forgotten", 7, "open")
    assert (found["partitions"], found["kind"]) == (5, "map")
    only = document(run("shuffles", "--json", "--app", instance.hex(), masters=cluster.endpoints))
    assert [one["shuffle"] for one in only["shuffles"]] == [7]
    assert "to-be-forgotten/7" in run("shuffles", masters=cluster.endpoints).stdout
    dropped = document(run("forget", f"{instance.hex()}/7", "--yes", "--json", masters=cluster.endpoints))
    assert (dropped["applications"], dropped["shuffles"]) == (0, 1)
    assert document(run("forget", "to-be-forgotten", "--yes", "--json", masters=cluster.endpoints))["applications"] == 1
    again = run("forget", "to-be-forgotten", masters=cluster.endpoints)
    assert again.returncode == 1
    assert 'no application is called "to-be-forgotten"' in again.stderr


def test_unreachable_masters_are_bad_news():
    """Endpoints where nobody listens leave with 1 and a sentence, not with a stack of calls."""
    done = run("workers", "--masters", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1: connection refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_endpoints_are_reported_by_what_they_are(cluster: LocalCluster):
    """A worker's ports and an unknown host given as masters: each with its cause, in `workers` and in `status`."""
    worker = cluster.workers[0]
    done = run("workers", "--masters", f"{worker.http},256.256.256.256:1")
    assert done.returncode == 1
    assert f"{worker.http}: answers, but is no master: this is a worker" in done.stderr
    assert "256.256.256.256:1: unknown host" in done.stderr
    said = document(run("status", "--masters", worker.address, "--json"), 1)
    assert any(worker.address in problem for problem in said["problems"])


def test_a_support_bundle_has_the_cluster(cluster: LocalCluster, tmp_path: Path):
    """From the host of a worker, and from the page of the leader: masters, workers, shuffles, applications, events and
    numbers are in it, and the worker's directories by name; nothing but logs is missing."""
    register(cluster, "in-the-bundle")
    done = run("doctor", "--config", cluster.workers[0].config, "--bundle", tmp_path / "b.tar.gz", "--json")
    said = document(done)
    assert [each for each in said["missing"] if each["name"] != "logs/journal.txt"] == []
    files = unpacked((tmp_path / "b.tar.gz").read_bytes())
    assert sum(name.startswith("masters/") for name in files) == 9
    assert sum(name.startswith("workers/") for name in files) == 4
    assert json.loads(files["directories/1.json"])["worker_name"] == cluster.workers[0].name
    with urlopen(f"http://{cluster.leader().address}/support.tar.gz", timeout=60) as reply:
        page = unpacked(reply.read())
    assert json.loads(page["contents.json"])["missing"] == []
    for found in (files, page):
        assert any(each["name"] == "in-the-bundle" for each in json.loads(found["cluster/apps.json"])["applications"])
        assert {"cluster/workers.json", "cluster/shuffles.json", "platform.json"} <= found.keys()
    (settings,) = [text for name, text in page.items() if name.endswith("/settings.json")]
    assert json.loads(settings)["master"]["peers"]


def test_inspect_and_verify_need_no_server(tmp_path: Path):
    """Both read the directory of a stopped worker; a flipped byte is found and named; one in use is refused with 2."""
    with local_cluster(masters=1, workers=1, dir=tmp_path) as cluster, Session(cluster.endpoints, app="cli") as session:
        directory = cluster.directory / "w1"
        shuffle = session.register_map_shuffle(4)
        with shuffle.writer(0, 0) as writer:
            shuffle.commit([writer.close([(partition, b"some payload") for partition in range(4)])])
        refused = run("verify", directory)
        assert refused.returncode == 2
        assert refused.stdout == ""
        assert refused.stderr.startswith("holdfast: "), "one sentence, and no empty line before it"
        listed = document(run("inspect", directory, "--names", "--json"))
        assert (listed["worker_name"], listed["shuffle_count"]) == ("w1", 1), "names are listed beside a worker"
        cluster.workers[0].stop()  # before the session ends and its data is forgotten
    said = document(run("inspect", directory, "--json"))
    assert [file["state"] for shuffle in said["shuffles"] for file in shuffle["files"]] == ["sealed"]
    assert document(run("verify", directory, "--json"))["good"] is True
    assert "1" in run("inspect", directory, "--files").stdout
    assert run("verify", directory).returncode == 0
    (path,) = directory.rglob("*.map")
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    said = document(run("verify", directory, "--json"), 1)
    assert any(finding["severity"] == "DAMAGE" and finding["path"] in str(path) for finding in said["findings"])
    assert "DAMAGE" in run("verify", directory).stdout
    (tmp_path / "empty").mkdir()
    assert run("inspect", tmp_path / "empty").returncode == 2


def test_inspect_shows_pushed_shuffles(tmp_path: Path):
    """Sealed epochs, pack files and bytes of a pushed shuffle are in the text, each file with --files."""
    with local_cluster(masters=1, workers=1, dir=tmp_path) as cluster, Session(cluster.endpoints, app="cli") as session:
        directory = cluster.directory / "w1"
        shuffle = session.register_reduce_shuffle(4, 1)
        with shuffle.writer(0, 0) as writer:
            for partition in range(4):
                writer.write(partition, b"some payload")
            shuffle.commit([writer.close()])
        cluster.workers[0].stop()
    drawn = run("inspect", directory, "--files")
    assert drawn.returncode == 0
    (row,) = [
        line.split() for line in drawn.stdout.splitlines() if line.lstrip().startswith(shuffle.key.instance.hex())
    ]
    assert row[1:8] == ["0", "0", "4", "0", "0", "1", "4"]
    (pack,) = directory.rglob("*.pack")
    assert drawn.stdout.count(pack.name) == 5, "four epochs are in it, and it is a file"
    (pack).unlink()
    missing = run("inspect", directory)
    assert missing.returncode == 1
    assert pack.name in missing.stdout


def test_local_runs_until_it_is_asked_to_stop(tmp_path: Path):
    """`local --json` prints one line when ready, answers `status`, ends with 0 on SIGTERM and leaves no process."""
    command = [*COMMAND, "local", "--masters", "1", "--workers", "1", "--dir", str(tmp_path), "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        with running.stdout:
            said = json.loads(running.stdout.readline())
            assert [server["role"] for server in said["servers"]] == ["master", "worker"]
            assert run("status", masters=said["endpoints"]).returncode == 0
            os.kill(said["servers"][1]["pid"], signal.SIGKILL)
            assert running.stderr is not None
            with running.stderr:
                reported = running.stderr.readline() + running.stderr.readline()
            assert "worker w1 has ended" in reported
            assert f"holdfast worker --config {tmp_path / 'w1.toml'}" in reported
            running.send_signal(signal.SIGTERM)
            assert running.stdout.read() == ""
        assert running.wait(SECONDS_MAX) == 0
    finally:
        running.kill()
        running.wait()
    assert not any(Path(f"/proc/{server['pid']}").exists() for server in said["servers"])


def test_bench_measures_what_is_named(tmp_path: Path):
    """`bench latency --json` has figures of the machine and of the latency, and no others."""
    said = document(run("bench", "latency", "--json", "--dir", tmp_path))
    assert {figure["section"] for figure in said["figures"]} == {"machine", "latency"}
    assert all(figure["value"] > 0 for figure in said["figures"])


def test_the_table_of_bench_fits():
    """However wide the screen and long the notes, no line has more than 120 columns, and nothing is cut off."""
    out = io.StringIO()
    note = "60 shuffles; median of " + ", ".join(f"step{number} {number}.5 ms" for number in range(12))
    figure = Figure("small", "4 maps x 4 partitions, 2 copies, median", 0.03, "s", 0.025, note=note)
    draw(figures=[figure], screen=Console(file=out, width=200))
    assert max(map(len, out.getvalue().splitlines())) <= 120
    assert all(word in out.getvalue() for word in note.split())


def test_what_is_shown_is_shown_as_it_is():
    """Names of sections in brackets are text of cells, not colours."""
    out = io.StringIO()
    Console(file=out, width=80).print(table(("problem",), [("check [dfs] url",)]))
    assert "check [dfs] url" in out.getvalue()


def test_what_terminals_obey_is_shown(capsys: pytest.CaptureFixture[str]):
    """A name with colours, a title for the window or a line of its own is one line that can be read, in tables and in
    what is printed; a text of several lines keeps them, and colours of our own stay."""
    name = "\x1b]0;pwned\x07\x1b[31mred\nall is well\x9b2J\u202egnp"
    shown = r"\x1b]0;pwned\x07\x1b[31mred\nall is well\x9b2J\u202egnp"

    def draw_it(screen: Console) -> None:
        screen.print(table(("name",), [(name,)]))
        screen.print(f"[bold]problem[/]: {escape(name)}", soft_wrap=True)
        screen.print(f"forgotten {name}", soft_wrap=True)

    show({}, False, draw_it)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if "pwned" in line] == [
        shown,
        f"problem: {shown}",
        f"forgotten {shown.partition(chr(92) + 'n')[0]}",
    ]
    assert not any("\x1b" in line or "\x9b" in line for line in lines)
    assert main.run(["forget", name, "--masters", name]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_drill_reports_as_json(tmp_path: Path):
    """A drill's document has its seed, counts of what was checked, and the verdict that the exit status repeats."""
    said = document(run("drill", "worker", "--count", 1, "--seed", 5, "--json", "--dir", tmp_path))
    assert (said["good"], said["seed"], said["rounds_done"]) == (True, 5, 1)
    assert sum(said["checks"].values()) > 0
