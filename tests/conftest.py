"""What all tests share: child processes that die with their test, and logs shown where a test fails.

Every `*.log` below a failed test's tmp_path is shown with the failure, the last lines of each, and kept below
HOLDFAST_TEST_LOGS if that is set, as tox does; the path is in the report.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from holdfast.common.system import process
from tests.support import features, preloaded
from tests.support.jvm import Jvm

# The same examples in every run, and no deadline: the machine may be busy with something else.
hypothesis.settings.register_profile("holdfast", derandomize=True, deadline=None)
hypothesis.settings.load_profile("holdfast")

#: What runs the plug-in's Java, and so has something to say on every line of Spark (tox -e spark35 to spark43).
PLUGIN = re.compile(r"(jvm/test_|spark/test_(plugin|synthetic|drill)|acceptance/test_spark|cli/test_plugin)\w*\.py$")

#: Of Spark's drivers in the default run, whose jobs are short: the second compiler and a collector with many threads
#: cost more than they bring. Long runs and benchmarks have the JVM as it comes.
SHORT_DRIVER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LINES_SHOWN = 60
LOGS_SHOWN = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --run-long and --record-features."""
    parser.addoption("--run-long", action="store_true", help="also run tests marked long, which take minutes")
    parser.addoption("--record-features", action="store_true", help="record tests of features; leave out no long one")


_starts = pytest.StashKey[preloaded.Switch]()


def pytest_configure(config: pytest.Config) -> None:
    """Have servers forked, and Spark start its drivers for short jobs, unless long ones were asked for."""
    if config.getoption("--record-features"):
        config.pluginmanager.register(features.Recorder())
    if config.getoption("--run-long"):
        return
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_DRIVER)
    forks = ExitStack()
    config.stash[_starts] = forks.enter_context(preloaded.installed())
    config.add_cleanup(forks.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Have the servers of tests marked real_starts started as users start them."""
    switch = item.config.stash.get(_starts, None)
    if switch is not None:
        switch.on = item.get_closest_marker("real_starts") is None
    return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs the plug-in's Java; leave out what is marked long, unless asked for."""
    for item in items:
        if PLUGIN.search(item.path.as_posix()):
            item.add_marker(pytest.mark.plugin)
    if config.getoption("--run-long"):
        return
    skip = pytest.mark.skip(reason="long; ask for it with --run-long")
    recorded = config.getoption("--record-features")
    for item in items:
        if item.get_closest_marker("long") and not (recorded and item.get_closest_marker("feature")):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Add the logs of the test's processes to the report of a failure."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        logs = sorted(directory.rglob("*.log"))
        for log in logs[:LOGS_SHOWN]:
            shown = _keep(log, log.relative_to(directory), item.nodeid)
            tail = log.read_text("utf-8", errors="replace").splitlines()[-LINES_SHOWN:]
            report.sections.append((f"end of {shown}", "\n".join(tail)))
        if len(logs) > LOGS_SHOWN:
            report.sections.append(("more logs", "\n".join(map(str, logs[LOGS_SHOWN:]))))
    return report


def _keep(log: Path, name: Path, test: str) -> Path:
    """Copy a log to where it outlives the run, if there is such a place; return where it can be read."""
    kept = os.environ.get("HOLDFAST_TEST_LOGS")
    if not kept:
        return log
    target = Path(kept) / re.sub(r"[^\w.-]+", "_", test) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(log, target))


class Processes:
    """Children of one test; their output goes to `<name>.log` below the test's tmp_path."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[str | os.PathLike[str]], environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command that dies with the test, or with the test run at the latest."""
        child = process.spawn(command, log=self.log(name), environ=environ, directory=self._directory)
        self._started.append(child)
        return child

    def log(self, name: str) -> Path:
        """Where the output of the child called `name` goes."""
        return self._directory / f"{name}.log"

    def kill(self) -> None:
        """Kill and reap whatever still runs."""
        for child in self._started:
            if child.poll() is None:
                child.kill()
            child.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Start children with `processes.start(name, command)`; they are gone when the test is."""
    started = Processes(tmp_path)
    yield started
    started.kill()


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    """The plug-in and its test programs, compiled once for all tests that need them."""
    classes = tmp_path_factory.mktemp("jvm") / "classes"
    classes.mkdir()
    return Jvm(classes)
