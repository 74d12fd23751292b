"""What the documentation tells people to type exists, and does what it says: each command is run, here or where named.

Online commands run against one local cluster, in the order of the pages; the words that stand for something (DIR, APP,
paths of /etc/holdfast) are replaced by what this cluster has. Servers, drills, benchmarks and what needs Spark are
parsed here and run by tests of their own.
"""

import ast
import configparser
import getpass
import importlib.util
import inspect
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.client import LocalCluster, MapShuffle, ReduceShuffle, Session, local_cluster
from holdfast.client.write.push_writer import PushWriter
from holdfast.client.write.writer import MapWriter
from holdfast.tools.cli.main import COMMANDS, holdfast, run
from tests.docs.blocks import Block, Command, blocks, commands, undefined
from tests.support.tree import ROOT

#: Commands that are run here, as the pages have them; every other one has a test somewhere that has its name in quotes.
RUN_HERE = (
    *("status", "workers", "shuffles", "doctor", "drain", "export", "forget", "placement", "reload"),
    *("inspect", "verify"),
)
#: Those that want a worker's directory which no server uses.
OFFLINE = ("inspect", "verify")
#: Words that stand for something, in options as well.
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_/\[\]]*$|…|.*\$\w|[\w.-]+/[\w.-]+")
OURS = [each for each in commands() if each.words[0] == "holdfast" and each.words[1] != "COMMAND"]
#: Named alone these say nothing; with something behind them they are run.
NEED_WORDS = ("placement",)
_NAMES = {
    "session": (Session,),
    "cluster": (LocalCluster,),
    "shuffle": (MapShuffle, ReduceShuffle),
    "writer": (MapWriter, PushWriter),
}


def is_mention(command: Command) -> bool:
    """Whether the text only names a command, as in "see `holdfast drain`", where it needs more to run."""
    return len(command.words) == 2


def needs_words(command: Command) -> bool:
    """Whether the command alone is wrong usage."""
    return command.words[1] in NEED_WORDS or any(each.required for each in parse(command).params)


def parse(command: Command) -> click.Command:
    """Have click read the words as they stand; raises what it says of unknown commands, options and arguments."""
    name, *words = command.words[1:]
    found = holdfast.get_command(click.Context(holdfast), name)
    assert found is not None, f"{command}: there is no command {name}"
    ctx = click.Context(found, info_name=name, resilient_parsing=True)
    values, extra, _ = found.make_parser(ctx).parse_args(list(words))
    if isinstance(found, click.Group):
        return found
    assert not extra, f"{command}: {extra} is too much"
    for parameter in found.params:
        value = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str) and not _PLACEHOLDER.match(value):
            parameter.type.convert(value, parameter, ctx)
    return found


@pytest.mark.parametrize("command", OURS, ids=str)
def test_every_command_of_ours_can_be_parsed(command: Command):
    """Each command, option and choice in the documentation is one that the command line takes."""
    parse(command)


def test_every_command_is_in_the_documentation():
    """docs/operate/cli.md has each command of the command line."""
    text = (ROOT / "docs" / "operate" / "cli.md").read_text("utf-8")
    assert [name for name in COMMANDS if not re.search(rf"`{name}\b", text)] == []


def test_what_does_not_run_here_runs_elsewhere():
    """Each other command has its name in quotes in some test."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    others = [name for name in COMMANDS if name not in RUN_HERE]
    assert [name for name in others if not any(f'"{name}"' in text for text in texts)] == []


def test_a_wrong_command_is_found():
    """The check can fail: a command, an option and a choice that do not exist are refused."""
    for words in (("frobnicate",), ("drain", "w1", "--gently"), ("export", "a/0", "--to", "x", "--format", "xml")):
        with pytest.raises((AssertionError, click.UsageError)):
            parse(Command("here", ("holdfast", *words)))


def expanded(section: str) -> list[str]:
    """The names of a section, whose braces tox expands."""
    return ["".join(words) for words in itertools.product(*(each.split(",") for each in re.split("[{}]", section)))]


@pytest.mark.parametrize("command", [one for one in commands() if one.words[0] == "tox"], ids=str)
def test_every_environment_exists(command: Command):
    """Each `tox -e NAME` in the documentation is an environment of tox.ini."""
    read = configparser.ConfigParser(interpolation=None)
    read.read(ROOT / "tox.ini")
    known = {"tests"} | {name for each in read.sections() for name in expanded(each.partition(":")[2])}
    assert command.words[1] == "-e"
    assert command.words[2] in known


@pytest.mark.parametrize("command", [one for one in commands() if one.words[0].startswith("python")], ids=str)
def test_every_module_exists(command: Command):
    """Each `python -m MODULE` in the documentation names a module that is there."""
    assert importlib.util.find_spec(command.words[2]) is not None


def test_nobody_is_sent_to_an_index_that_has_no_holdfast():
    """Before the first release nothing tells people to install or download `holdfast` by name without a wheelhouse."""
    wrong = re.compile(r"pip (?:install|download|wheel) (?:--?\S+ (?:[^-'\"\s]\S* )?)*['\"]?holdfast\b")
    for words in (
        "install 'holdfast[ca]'",
        "download --dest wheelhouse/0.1.0 'holdfast[dfs]==0.1.0'",
        "install holdfast",
    ):
        assert wrong.search(f"pip {words}")
    folders = ("client", "common", "deploy", "docs", "examples", "master", "worker")
    texts = [
        ROOT / "README.md",
        *(path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.is_file()),
    ]
    suffixes = {".md", ".py", ".java", ".yml", ".cfg"}
    assert [
        path
        for path in texts
        if path.suffix in suffixes and path.parent.name != "adr" and wrong.search(path.read_text("utf-8"))
    ] == []


def test_the_script_knows_its_words():
    """Each `./run WORD` in the documentation is one that the script lists."""
    text = (ROOT / "run").read_text("utf-8")
    for command in commands():
        if command.words[0] == "./run":
            assert f"./run {command.words[1]}" in text


# Running.


class World:
    """A cluster with something in it, and what stands for what in the documentation."""

    def __init__(self, cluster: LocalCluster, session: Session, directory: Path) -> None:
        self.cluster, self._session, self._directory, self._made = cluster, session, directory, 0
        spark = directory / "spark-defaults.conf"
        spark.write_text(f"spark.holdfast.master.endpoints {cluster.endpoints}\n")
        page = (ROOT / "docs" / "operate" / "placement.md").read_text("utf-8")
        (directory / "cluster.toml").write_text(
            textwrap.dedent(page[page.index("    [shuffle]") : page.index("\n`holdfast status` and the page show")])
        )
        self._stand_for = {
            "$HOLDFAST_MASTERS": cluster.endpoints,
            "/etc/holdfast/master.toml": str(cluster.masters[0].config),
            "/etc/holdfast/worker.toml": str(cluster.workers[1].config),
            "/etc/holdfast/worker-1.toml": str(cluster.workers[1].config),
            "support.tar.gz": str(directory / "support.tar.gz"),
            "/data1/holdfast": str(cluster.directory / "w2"),
            "/tmp/try/w1": str(cluster.directory / "w2"),
            "/opt/spark/conf/spark-defaults.conf": str(spark),
            "cluster.toml": str(directory / "cluster.toml"),
            "…": cluster.endpoints,
            "INSTANCE": session.instance.hex(),
            "APP/SHUFFLE[/GENERATION]": f"{session.instance.hex()[:8]}/0",
            "WORKER": "w2",
            "WORKER…": "w2",
            "HOST": "h1",
            "APP": session.app,
            "APP/SHUFFLE": f"{session.app}/0",
            "FILE": str(cluster.workers[1].config),
            "holdfast": getpass.getuser(),
        }

    def words(self, command: Command) -> list[str]:
        """The words with what they stand for here."""
        name, *words = command.words[1:]
        found = [self._stand_for.get(word, word) for word in words]
        if "DIR" in found:
            self._made += 1
            new = self._directory / f"made-{self._made}"
            found = [
                str(self.cluster.directory / "w2" if name in OFFLINE else new) if word == "DIR" else word
                for word in found
            ]
        if name == "drain" and "--no-wait" not in found:
            found.append("--no-wait")  # nobody restarts it meanwhile
        return [name, *found]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A master, two workers, and a shuffle of rows of the application "nightly report"."""
    from pyarrow import table

    from holdfast.client.arrow.tables import write_table

    directory = tmp_path_factory.mktemp("docs")
    with (
        local_cluster(masters=1, workers=2, dir=directory / "cluster") as cluster,
        Session(cluster.endpoints, app="nightly report") as session,
    ):
        write_table(session, table({"id": range(100)}), 2)
        yield World(cluster, session, directory)


def runnable(offline: bool) -> list[Command]:
    """What is run here, of the one kind or the other; what ends an application or drains a worker goes last.

    w1 is drained before the other worker, which may then have nobody left to take its place: see `allowed` below.
    """
    last = ("drain", "forget")
    chosen = [
        command
        for command in OURS
        if command.words[1] in RUN_HERE
        and "/adr/" not in command.source  # which only speak of commands
        and (command.words[1] in OFFLINE) == offline
        and not (is_mention(command) and needs_words(command))
    ]
    return sorted(chosen, key=lambda command: (command.words[1] in last, "w1" not in command.words))


def test_every_command_of_the_documentation_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Each command that asks a cluster runs as it is written and ends with 0; the doctor may find something."""
    monkeypatch.setenv("HOLDFAST_MASTERS", world.cluster.endpoints)
    ran = 0
    for command in runnable(offline=False):
        words = world.words(command)
        status = run(words)
        reported = capsys.readouterr()
        allowed = (0, 1) if words[0] == "doctor" or "w2" in words else (0,)
        assert status in allowed, f"{command} ended with {status}: {reported.err or reported.out}"
        ran += 1
    assert ran >= 10


def test_every_offline_command_runs(world: World, capsys: pytest.CaptureFixture[str]):
    """`inspect` and `verify` run as they are written, on the directory of a worker that has stopped."""
    world.cluster.workers[1].end()
    for command in runnable(offline=True):
        status = run(world.words(command))
        assert status == 0, f"{command}: {capsys.readouterr().err}"


# Python.


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_every_block_of_python_is_of_this_release(block: Block):
    """Blocks compile, import what there is, and call methods that exist with arguments that they take."""
    tree = ast.parse(block.text, block.source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            _check_call(node, node.func.value.id, node.func.attr)


def _check_call(node: ast.Call, name: str, method: str) -> None:
    owners = _NAMES.get(name, ())
    found = [getattr(owner, method) for owner in owners if hasattr(owner, method)]
    assert found or not owners, f"{name}.{method} does not exist"
    words = {each.arg for each in node.keywords if each.arg}
    taken = [set(inspect.signature(each).parameters) for each in found]
    assert not taken or any(words <= each for each in taken), f"{name}.{method} does not take {words}"


def whole_blocks(spark: bool) -> list[Block]:
    """Blocks that can be pasted as they are: they use no name that they do not make."""
    return [
        block
        for block in blocks()
        if not undefined(ast.parse(block.text)) and "pass" not in block.text and ("SparkSession" in block.text) == spark
    ]


def run_block(block: Block, directory: Path, endpoints: str) -> None:
    """Run a block in a Python of its own."""
    environ = {**os.environ, "HOLDFAST_MASTERS": endpoints, "PYSPARK_PYTHON": sys.executable}
    # Examples name addresses of a cluster that somebody else has.
    text = block.text.replace("127.0.0.1:7070,127.0.0.1:7071,127.0.0.1:7072", endpoints)
    command = [sys.executable, "-P", "-c", text]
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, f"{block}:\n{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoints of a cluster on which no command was run: the other one's workers drain and have stopped."""
    with local_cluster(masters=1, workers=2, dir=tmp_path_factory.mktemp("blocks") / "cluster") as cluster:
        yield cluster.endpoints


@pytest.mark.long
@pytest.mark.parametrize("block", whole_blocks(spark=False), ids=str)
def test_every_whole_block_runs(block: Block, untouched: str, tmp_path: Path):
    """Each block that can be pasted runs to its end."""
    run_block(block, tmp_path, untouched)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("block", whole_blocks(spark=True), ids=str)
def test_every_whole_block_with_spark_runs(block: Block, untouched: str, tmp_path: Path):
    """Each block with Spark that can be pasted runs to its end, in a fresh Python."""
    run_block(block, tmp_path, untouched)
