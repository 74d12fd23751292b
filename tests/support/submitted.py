"""Jobs that are handed to spark-submit: queries_job.py, what it wrote, and what it should have written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from holdfast.common.system import process
from tests.support.waiting import wait_until

SPARK = Path(pyspark.__file__).parent
JOB = Path(__file__).with_name("queries_job.py")
SUBMIT = str(SPARK / "bin" / "spark-submit")
_PASS_SECONDS = 600.0
_DRILL_SECONDS = 900.0
_SMALL = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "768m", "spark.ui.enabled": "false"}
_ENVIRON = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def own_answers(directory: Path) -> list[Any]:
    """What the queries give with Spark's own shuffle."""
    with submitted(directory, {}, "--master", "local[2]") as running:
        answers: list[Any] = running.wait_for(0)["answers"]
        running.end()
    return answers


class Running:
    """A job that was submitted."""

    def __init__(self, submit: "subprocess.Popen[bytes]", out: Path, log: Path) -> None:
        self._submit, self._out, self._log = submit, out, log

    def wait_for(self, number: int) -> Any:
        """Wait for a pass of the queries, and return what it wrote."""
        return self.wait_until(lambda: self._pass(number), f"pass {number}")

    def wait_until(self, what: Callable[[], Any], name: str) -> Any:
        """Wait for something while the job runs."""

        def seen() -> Any:
            assert self._submit.poll() is None, self.said()[-6000:]
            return what()

        return wait_until(seen, name, _PASS_SECONDS)

    def after(self, what: Callable[[], Any]) -> Any:
        """Do something, and return what the first pass wrote that began afterwards."""
        begun = len(self.passes())
        what()
        return self.wait_for(begun + 1)

    def passes(self) -> list[Any]:
        """All that was written."""
        return [json.loads(each.read_text()) for each in self._out.glob("pass-*.json")]

    def said(self) -> str:
        """What spark-submit, and in client mode the driver, has logged."""
        return self._log.read_text()

    def end(self) -> None:
        """Let it end, and see that it ended well."""
        (self._out / "go").touch()
        assert self._submit.wait(_PASS_SECONDS) == 0, self.said()[-6000:]

    def _pass(self, number: int) -> Any:
        path = self._out / f"pass-{number}.json"
        return json.loads(path.read_text()) if path.exists() else None


@contextmanager
def submitted(
    directory: Path,
    settings: Mapping[str, str],
    *words: str,
    environ: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Running]:
    """Submit the job with these settings of Spark, and what else it and spark-submit take; it ends with the block."""
    out, log = directory / "out", directory / "submit.log"
    out.mkdir(parents=True)
    asked = [word for key, value in {**_SMALL, **settings}.items() for word in ("--conf", f"{key}={value}")]
    command = [SUBMIT, *words, *asked, str(JOB), str(out), *arguments]
    started = process.spawn(command, log=log, environ=_ENVIRON | dict(environ or {}))
    try:
        yield Running(started, out, log)
    finally:
        process.stop(started)


def drill_on(
    master: str, directory: Path, killed: str, settings: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> None:
    """Run a short drill whose executors are in the cluster of this master; it must be good."""
    defaults = directory / "conf"
    defaults.mkdir()
    lines = [f"{key} {value}" for key, value in settings.items()]
    (defaults / "spark-defaults.conf").write_text("\n".join(lines))
    command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", "drill", "spark", "--spark-master", master]
    done = subprocess.run(
        [*command, "--kill", killed, "--copies", "2", "--count", "3", "--dir", str(directory / "drill")],
        env={**os.environ, **_ENVIRON, **(environ or {}), "SPARK_CONF_DIR": str(defaults)},
        check=False,
        capture_output=True,
        text=True,
        timeout=_DRILL_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
