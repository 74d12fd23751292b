"""What is wrong from the start is said soon, in a sentence: jars, Sparks that run already, masters that are gone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast.client.cluster.local import local_cluster
from holdfast.client.spark.jar import check_jar, installed_spark
from holdfast.client.spark.jar import jar as build_jar
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from tests.spark.test_plugin import job
from tests.support.logged import lines_of
from tests.support.spark_conf import conf
from tests.support.submitted import SUBMIT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
#: Longer than any test here waits.
NEVER = "600s"


def test_a14_a_jar_that_will_not_do_is_refused(tmp_path: Path) -> None:
    """conf() refuses a jar that is not there, is none, is another's, or was built for another line of Spark, and says
    where the right one is; one that Spark fetches from elsewhere is not looked at."""
    text, others, older = (tmp_path / name for name in ("text.jar", "others.jar", "older.jar"))
    text.write_text("no jar")
    with zipfile.ZipFile(others, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\n")
    with zipfile.ZipFile(older, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\nSpark-Version: 3.3.1\r\n\r\n")
        archive.writestr("org/apache/spark/shuffle/holdfast/HoldfastShuffleManager.class", b"")
    wrong = {
        tmp_path / "none.jar": "there is no jar",
        tmp_path: "is no jar",
        text: "is no jar",
        others: "is not Holdfast's jar",
        older: "was built for Spark 3.3.1",
    }
    for path, reason in wrong.items():
        with pytest.raises(ConfigError, match=f"{reason}.*holdfast spark-jar"):
            conf("one:1", jar=path)
    check_jar(str(build_jar()), installed_spark())
    for elsewhere in ("hdfs://one/holdfast.jar", "local:/opt/holdfast.jar"):
        found = elsewhere.removeprefix("local:") if installed_spark().line < (4, 0) else elsewhere
        assert found in conf("one:1", jar=elsewhere).values()


def test_a14_a_spark_that_runs_without_the_plug_in_is_refused(tmp_path: Path) -> None:
    """In a process where a session runs with Spark's own shuffle, or has run, conf() says that the settings would do
    nothing and what to do; for another process it makes them. A session that had them from the start may have them."""
    script = tmp_path / "late.py"
    script.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from holdfast.client.spark import conf, enable\n"
        "from holdfast.common.errors import ConfigError\n"
        "def begin(settings):\n"
        "    usual = {'spark.ui.enabled': 'false', 'spark.driver.host': '127.0.0.1'}\n"
        "    return SparkSession.builder.master('local[1]').config(map={**usual, **settings}).getOrCreate()\n"
        "def refused(make):\n"
        "    try:\n"
        "        make('127.0.0.1:1')\n"
        "    except ConfigError as error:\n"
        "        return str(error)\n"
        "    return 'taken'\n"
        "def enabled(endpoints, **options):\n"
        "    return enable(SparkSession.builder, endpoints, **options)\n"
        "spark = begin(conf('127.0.0.1:1') if sys.argv[1] == 'with' else {})\n"
        "print(refused(conf), refused(enabled), sep='\\n')\n"
        "spark.stop()\n"
        "print(refused(conf), refused(enabled), sep='\\n')\n"
        "assert conf('127.0.0.1:1', here=False)\n"
        "print(refused(lambda masters: enabled(masters, here=False)))\n"
    )

    def said(how: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(script), how], check=False, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.splitlines()

    without = said("without")
    *usual, asked = without
    assert len(usual) == 4
    assert all("without Holdfast's jar" in each and "new Python process" in each for each in usual)
    assert ["here=False" in each for each in usual] == [True, False, True, False]  # enable() is never for another one
    assert "enable() is for a session of this process" in asked
    assert said("with") == [*["taken"] * 4, asked]


def test_a_script_of_spark_submit_is_told_where_the_settings_go(tmp_path: Path) -> None:
    """The JVM of a script that spark-submit runs is there before the script: without the plug-in enable() says where
    the settings belong, and with them it may be called as well."""
    script = tmp_path / "job.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "from holdfast.client.spark import enable\n"
        "from holdfast.common.errors import ConfigError\n"
        "try:\n"
        "    enable(SparkSession.builder, '127.0.0.1:1')\n"
        "except ConfigError as error:\n"
        "    print('refused:', error)\n"
        "else:\n"
        "    print('taken')\n"
    )
    given = tmp_path / "holdfast.conf"
    given.write_text("".join(f"{name} {value}\n" for name, value in conf("127.0.0.1:1").items()))

    def said(*words: str) -> str:
        command = [SUBMIT, "--master", "local[1]", *words, str(script)]
        environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environ)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    assert "refused: spark-submit has started the JVM without Holdfast's jar" in (refusal := said())
    assert "--properties-file" in refusal
    assert said("--properties-file", str(given)) == "taken\n"


def test_a14_masters_that_went_cost_a_shuffle_the_time_to_register_and_no_more(tmp_path: Path) -> None:
    """An application whose masters are gone since its last shuffle falls back after `register.timeout`, however long
    its other calls are repeated, and says before that why no master was found."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        settings = conf(cluster.endpoints) | {
            "spark.holdfast.request.timeout": NEVER,
            "spark.holdfast.register.timeout": "5s",
        }
        with job("twice", settings, tmp_path) as running:
            assert running.step() == 100
            for each in [*cluster.masters, *cluster.workers]:
                each.kill()
            running.go()
            assert running.step() == 100
            log = running.log()
    assert lines_of(log, LogEvent.SHUFFLE_FALLBACK)
    assert 0 < log.index(f"{LogEvent.LEADER_MISSING} ") < log.index(f"{LogEvent.SHUFFLE_FALLBACK} ")


def test_masters_that_start_again_are_waited_for_where_nothing_falls_back(tmp_path: Path) -> None:
    """With fallback never, masters that are gone for longer than `register.timeout` in the middle of an application
    cost its next shuffle the time until they are back, and no job."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        settings = conf(cluster.endpoints, fallback="never") | {"spark.holdfast.register.timeout": "1s"}
        with job("twice", settings, tmp_path) as running:
            assert running.step() == 100
            cluster.masters[0].kill()
            running.go()
            wait_until(lambda: lines_of(running.log(), LogEvent.LEADER_MISSING), "the shuffle to wait for the masters")
            cluster.masters[0].start()
            assert running.step() == 100
            assert "could not be registered" not in running.log()
