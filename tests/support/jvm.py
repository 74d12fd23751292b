"""Java of the plug-in under test: compiled once per run against the installed Spark, run as programs with a deadline.

Test programs are `main`s below client/jvm/src/test/java; no test framework. Names are given below the root package:
`jvm.run("wire.GoldenMain", ...)`. Where some source does not compile, programs that do not use it run all the same, and
tests/jvm/test_golden.py says what is wrong. The fixture `jvm` is in tests/conftest.py: tests/jvm and tests/spark share
its classes.
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.client.spark.jar import Spark, installed_spark
from holdfast.common.errors import ConfigError
from holdfast.common.system import process
from tests.support.tree import ROOT
from tests.support.waiting import wait_until

SOURCES = ROOT / "client" / "jvm" / "src"
PACKAGE = "org.apache.spark.shuffle.holdfast"
#: As in the plug-in's own build, and no warning passes.
JAVAC = ["--release", "17", "-Xlint:all,-serial,-processing,-path,-classfile", "-proc:none", "-implicit:class"]
#: Small heaps: several of these may run at once beside a cluster.
JAVA = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-ea"]
COMPILE_SECONDS = 240.0
RUN_SECONDS = 60.0
_TAIL_CHARS = 8_000


def the_spark() -> Spark:
    """The Spark that is installed; skips the test where there is none."""
    try:
        return installed_spark()
    except ConfigError as none:
        pytest.skip(str(none))


def tool(name: str) -> str:
    """`java` or another program of JAVA_HOME, else of the PATH: a runtime has no compiler."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / name)) if home else None
    found = found or shutil.which(name)
    assert found, f"these tests need a JDK 17 or 21: {name} is neither below JAVA_HOME nor on the PATH"
    return found


class Program:
    """A Java program that runs beside the test: lines go in, lines come out."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        # The same as process.spawn, with a standard input.
        launcher = [sys.executable, "-I", "-S", process.__file__, str(os.getpid())]
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*launcher, *command], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
            )
        self._read = 0

    def say(self, *words: object) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def hear(self, prefix: str, seconds: float = RUN_SECONDS) -> str:
        """Return the rest of the next line that begins with `prefix`; lines before it are passed by."""
        found, self._read = self._wait(prefix, seconds, self._read)
        return found

    def find(self, prefix: str, seconds: float = RUN_SECONDS) -> str:
        """Return the rest of the first line of all that begins with `prefix`; `hear` goes on where it was."""
        return self._wait(prefix, seconds, 0)[0]

    def _wait(self, prefix: str, seconds: float, start: int) -> tuple[str, int]:
        def line() -> tuple[str, int] | None:
            ended = self.process.poll() is not None  # looked at first, or its last words would be missed
            text, at = self._log.read_bytes(), start
            while (end := text.find(b"\n", at)) >= 0:
                said = text[at:end].decode("utf-8", "replace")
                at = end + 1
                if said.startswith(prefix):
                    return said[len(prefix) :].strip(), at
            assert not ended, f"ended before it said {prefix!r}:\n{self.output()}"
            return None

        found = wait_until(line, f"{prefix!r} of {self._log.name}", seconds)
        assert found is not None
        return found

    def output(self) -> str:
        """The end of what it has said."""
        return self._log.read_text("utf-8", errors="replace")[-_TAIL_CHARS:]

    def wait(self, seconds: float = RUN_SECONDS) -> int:
        """Close its standard input and return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it at once."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


class Jvm:
    """Compiled classes and how to run them."""

    def __init__(self, classes: Path) -> None:
        self.classes = classes
        spark = the_spark()
        self._jars = os.pathsep.join(map(str, sorted(spark.jars.glob("*.jar"))))
        self._turn = threading.Lock()
        self._sources = [SOURCES / part / "java" for part in ("main", spark.shim, "test")]
        files = sorted(str(each) for folder in self._sources for each in folder.rglob("*.java"))
        #: what javac said to all sources together; "" where it found no fault
        self.complaints = self._javac(["-Werror", *files])

    @property
    def class_path(self) -> str:
        """Classes of main, shims and tests, and Spark's jars."""
        return os.pathsep.join((str(self.classes), self._jars))

    def run(self, main: str, *args: object, seconds: float = RUN_SECONDS, options: tuple[str, ...] = ()) -> str:
        """Run a main class to its end and return its standard output. An exit status other than 0 fails the test."""
        command = self.command(main, *args, options=options)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"{main} did not end within {seconds:g} s\n{_text(late.stdout)}\n{_text(late.stderr)}")
        if done.returncode:
            reported = f"{done.stdout[-_TAIL_CHARS:]}\n{done.stderr[-_TAIL_CHARS:]}"
            pytest.fail(f"{main} ended with {done.returncode}\n{reported}")
        return done.stdout

    def command(self, main: str, *args: object, options: tuple[str, ...] = ()) -> list[str]:
        """The command that runs a main class, compiled first if that is needed."""
        self._ensure(main)
        return [tool("java"), *JAVA, *options, "-cp", self.class_path, f"{PACKAGE}.{main}", *map(str, args)]

    def _ensure(self, main: str) -> None:
        path = f"{PACKAGE}.{main}".replace(".", "/")
        with self._turn:
            if not (self.classes / f"{path}.class").exists():
                complaints = self._javac([str(self._sources[-1] / f"{path}.java")])
                assert not complaints, complaints

    def _javac(self, what: list[str]) -> str:
        where = ["-d", str(self.classes), "-cp", self.class_path]
        where += ["-sourcepath", os.pathsep.join(str(each) for each in self._sources)]
        argfile = self.classes.with_suffix(".args")
        argfile.write_text("\n".join([*JAVAC, *where, *what]))
        done = subprocess.run(
            [tool("javac"), f"@{argfile}"], capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
        if done.returncode:
            return done.stdout + done.stderr
        return ""


def _text(output: str | bytes | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


class Programs:
    """The Java programs of one test; their output goes to `<main>-<n>.log` below its tmp_path."""

    def __init__(self, jvm: Jvm, directory: Path) -> None:
        self._jvm = jvm
        self._directory = directory
        self._started: list[Program] = []

    def start(self, main: str, *args: object, options: tuple[str, ...] = ()) -> Program:
        """Run a main class beside the test."""
        log = self._directory / f"{main}-{len(self._started)}.log"
        started = Program(self._jvm.command(main, *args, options=options), log)
        self._started.append(started)
        return started

    def kill(self) -> None:
        """End what still runs."""
        for each in self._started:
            each.kill()
