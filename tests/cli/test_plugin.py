"""`holdfast spark-jar` and `holdfast spark-conf`: the jar, what is said where there can be none, the settings."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Ack
from holdfast.client.spark import enable
from holdfast.client.spark.jar import Spark, _plan, build, installed_spark, jar, prebuild, write_sum
from holdfast.common.errors import ConfigError
from tests.support.spark_conf import conf
from tests.support.tree import ROOT

#: Compilers are started, by several tests at once on a busy machine.
pytestmark = pytest.mark.timeout(900)
COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main"]
SECONDS_MAX = 240.0
PACKAGE = "org/apache/spark/shuffle/holdfast/"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache directory that is empty at first."""
    return tmp_path_factory.mktemp("cache")


def start(cache: Path, *words: str, **environ: str) -> "subprocess.Popen[str]":
    """Start one command line with this cache; the variables of the JVM come from `environ` where they are named."""
    everything = {**os.environ, "XDG_CACHE_HOME": str(cache), **environ}
    command = [*COMMAND, *words]
    return subprocess.Popen(command, text=True, env=everything, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(cache: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    """Run it to its end: exit status, what it printed, what it complained of."""
    with start(cache, *words, **environ) as process:
        out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out.strip(), err.strip()


@pytest.mark.long
def test_jar_is_built_once_however_many_ask(cache: Path) -> None:
    """Two builds at once leave one whole jar of the main sources alone, and the next call builds nothing."""
    pytest.importorskip("pyspark")
    processes = [start(cache, "spark-jar") for _ in range(2)]
    answers = {process.communicate(timeout=SECONDS_MAX)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    (path,) = map(Path, answers)
    assert path.parent == cache / "holdfast"
    assert sorted(path.parent.iterdir()) == [path, Path(f"{path}.sha256")], "nothing is left of the builds"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    assert {f"{PACKAGE}HoldfastShuffleManager.class", f"{PACKAGE}Shims.class"} <= names
    assert not [name for name in names if "probe/" in name or name.endswith("Main.class")]
    before, content = path.stat().st_mtime_ns, path.read_bytes()
    status, out, _ = run(cache, "spark-jar", "--json")
    assert (status, json.loads(out)["jar"], path.stat().st_mtime_ns) == (0, str(path), before)
    path.write_bytes(content[:-1])
    assert run(cache, "spark-jar")[0] == 0
    assert path.read_bytes() == content, "a damaged jar is built again"


def test_without_a_compiler_the_command_says_what_to_install(tmp_path: Path) -> None:
    """No javac is exit status 2 and a sentence; nothing is left in the cache."""
    pytest.importorskip("pyspark")
    status, _, err = run(tmp_path / "cache", "spark-jar", PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert status == 2
    assert "install a JDK 17" in err
    assert not (tmp_path / "cache").exists()


def test_old_compiler_is_refused(tmp_path: Path) -> None:
    """A javac below 17 is named, with what is needed."""
    pytest.importorskip("pyspark")
    javac = tmp_path / "bin" / "javac"
    javac.parent.mkdir()
    javac.write_text("#!/bin/sh\necho javac 11.0.2\n")
    javac.chmod(0o755)
    status, _, err = run(tmp_path / "cache", "spark-jar", JAVA_HOME=str(tmp_path))
    assert status == 2
    assert "javac 11" in err
    assert "JDK 17" in err


def test_without_spark_the_command_says_so(cache: Path, tmp_path: Path) -> None:
    """A directory that holds no Spark is named."""
    status, _, err = run(cache, "spark-jar", "--spark-home", str(tmp_path))
    assert status == 2
    assert str(tmp_path) in err


def test_source_that_does_not_compile_leaves_no_jar(tmp_path: Path) -> None:
    """The compiler's complaint is told, and no jar appears that could be taken for a good one."""
    pytest.importorskip("pyspark")
    source = tmp_path / "Wrong.java"
    source.write_text("class Wrong { int x = ; }")
    with pytest.raises(ConfigError, match="does not compile"):
        build(installed_spark(), [source], tmp_path / "out" / "wrong.jar")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("name", "line", "shim"),
    [
        ("spark-core_2.12-3.5.8", (3, 5), "spark35"),
        ("spark-core_2.13-4.0.1", (4, 0), "spark35"),
        ("spark-core_2.13-4.3.0", (4, 3), "spark4"),
    ],
)
def test_spark_is_known_by_its_core_jar(tmp_path: Path, name: str, line: tuple[int, int], shim: str) -> None:
    """Version and Scala are read from the name of the core jar, and decide which sources are compiled."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"{name}.jar").touch()
    found = installed_spark(tmp_path)
    assert (found.line, found.shim) == (line, shim)
    assert f"spark-core_{found.scala}-{found.version}" == name


def test_spark_that_is_too_old_is_refused(tmp_path: Path) -> None:
    """Spark 3.4 is named with what is needed."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.4.4.jar").touch()
    with pytest.raises(ConfigError, match=r"3\.4\.4 .* 3\.5 or later"):
        installed_spark(tmp_path)


def test_settings_name_the_jar_as_the_line_of_spark_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 3.5 gets the jar on class paths, since it makes the manager before it fetches spark.jars; 4.x fetches."""
    old = Spark(ROOT, "3.5.8", "2.12", (3, 5))
    monkeypatch.setattr("holdfast.client.spark.settings.installed_spark", lambda: old)
    settings = conf("one:1, two:2", replication=3, jar="local:/x.jar")
    assert settings["spark.executor.extraClassPath"] == settings["spark.driver.extraClassPath"] == "/x.jar"
    assert "spark.jars" not in settings
    assert settings["spark.holdfast.master.endpoints"] == "one:1,two:2"
    assert settings["spark.holdfast.replication"] == "3"
    assert not {"spark.holdfast.tags", "spark.holdfast.ack.copies"} & settings.keys()
    assert conf("one:1", replication=3, ack_copies=2, jar="local:/x.jar")["spark.holdfast.ack.copies"] == "2"
    assert conf("one:1", jar="local:/x.jar", tags=["ssd", "etl"])["spark.holdfast.tags"] == "ssd,etl"
    new = Spark(ROOT, "4.1.2", "2.13", (4, 1))
    monkeypatch.setattr("holdfast.client.spark.settings.installed_spark", lambda: new)
    assert conf("one:1", jar="local:/x.jar")["spark.jars"] == "local:/x.jar"


def test_settings_name_a_coordinate_of_maven(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a coordinate Spark 4 fetches the jar as a package; one for another Spark is refused, and so is any by Spark
    3.5, whose executors would miss it."""
    named = "org.holdfast:holdfast-spark-4.1_2.13:0.1.0"
    new, old = Spark(ROOT, "4.1.2", "2.13", (4, 1)), Spark(ROOT, "3.5.8", "2.12", (3, 5))
    monkeypatch.setattr("holdfast.client.spark.settings.installed_spark", lambda: new)
    settings = conf("one:1", jar=named)
    assert settings["spark.jars.packages"] == named
    assert "spark.jars" not in settings
    with pytest.raises(ConfigError, match=r"name holdfast-spark-4\.1_2\.13"):
        conf("one:1", jar="org.holdfast:holdfast-spark-4.0_2.13:0.1.0")
    monkeypatch.setattr("holdfast.client.spark.settings.installed_spark", lambda: old)
    with pytest.raises(ConfigError, match="before executors fetch packages; name a jar by its path"):
        conf("one:1", jar="org.holdfast:holdfast-spark-3.5_2.12:0.1.0")


def test_settings_bring_the_jar_as_the_cluster_manager_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods have the jar in their image, whatever Spark is installed here; YARN ships a file to each container, as 3.5
    needs, which fetches spark.jars too late; local and standalone need nothing else."""
    where = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
    for line, version in (((3, 5), "3.5.8"), ((4, 1), "4.1.2")):
        monkeypatch.setattr(
            "holdfast.client.spark.settings.installed_spark",
            lambda line=line, version=version: Spark(ROOT, version, "2.13", line),
        )
        monkeypatch.setattr("holdfast.client.spark.settings.find_jar", lambda _: Path("/here/x.jar"))
        pods = conf("one:1", cluster_manager="k8s")
        assert [pods[each] for each in where] == ["/opt/holdfast/holdfast-spark.jar"] * 2
        assert conf("one:1", cluster_manager="k8s", jar="local:/y.jar")[where[0]] == "/y.jar"
        usual = conf("one:1")
        assert conf("one:1", cluster_manager="standalone") == conf("one:1", cluster_manager="local") == usual
        yarn = conf("one:1", cluster_manager="yarn")
        if line >= (4, 0):
            assert yarn == usual
            continue
        assert yarn["spark.yarn.dist.files"] == "/here/x.jar"
        assert [yarn[each] for each in where] == ["/here/x.jar", "x.jar"]
        assert conf("one:1", cluster_manager="yarn", deploy_mode="cluster")[where[0]] == "x.jar"
    with pytest.raises(ConfigError, match=r"cluster_manager is .*'mesos'"):
        conf("one:1", cluster_manager="mesos")  # type: ignore[arg-type]


def test_wrong_settings_are_refused() -> None:
    """A wrong endpoint or word is a sentence before Spark ever starts."""
    with pytest.raises(ConfigError, match="no endpoint"):
        conf("nowhere", jar="local:/x.jar")
    with pytest.raises(ConfigError, match="replication is 1 to 5, not 6"):
        conf("one:1", replication=6, jar="local:/x.jar")
    assert conf("one:1", ack=Ack.SYNCED, jar="local:/x.jar")["spark.holdfast.ack"] == "synced"
    with pytest.raises(ConfigError, match="'memory', 'written', 'synced'"):
        conf("one:1", ack="fsynced", jar="local:/x.jar")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ack_copies is 1 to 2, the copies that there are, not 3"):
        conf("one:1", replication=2, ack_copies=3, jar="local:/x.jar")
    with pytest.raises(ConfigError, match="is no tag"):
        conf("one:1", tags=["a b"], jar="local:/x.jar")


def test_enable_sets_the_builder_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """enable() gives the builder back with the settings of conf(), of the masters it is told or HOLDFAST_MASTERS names;
    without masters, or for a client of Spark Connect, it is a sentence before anything starts."""
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)  # other tests in this process may have started one
    monkeypatch.delenv("HOLDFAST_MASTERS", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    wanted: dict[str, Any] = {"replication": 2, "jar": "local:/x.jar"}
    builder = sql.SparkSession.builder.config("spark.app.name", "mine")
    assert enable(builder, "one:1", **wanted) is builder
    assert builder._options == conf("one:1", replication=2, jar="local:/x.jar") | {"spark.app.name": "mine"}
    with pytest.raises(ConfigError, match=r"no masters are named.*HOLDFAST_MASTERS"):
        enable(sql.SparkSession.builder, **wanted)
    monkeypatch.setenv("HOLDFAST_MASTERS", "two:2")
    named = enable(sql.SparkSession.builder, **wanted)._options["spark.holdfast.master.endpoints"]
    assert named == "two:2"
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    with pytest.raises(ConfigError, match="start the server with these settings"):
        enable(sql.SparkSession.builder)


def test_spark_conf_prints_what_spark_submit_reads(cache: Path) -> None:
    """One setting a line, as in spark-defaults.conf; with --json the same as a document."""
    pytest.importorskip("pyspark")
    words = ("spark-conf", "--masters", "one:1", "--ack", "synced", "--jar", "local:/x.jar")
    status, lines, _ = run(cache, *words)
    assert status == 0
    reported = dict(line.split(" ", 1) for line in lines.splitlines())
    assert reported["spark.shuffle.manager"] == "org.apache.spark.shuffle.holdfast.HoldfastShuffleManager"
    assert reported["spark.holdfast.ack"] == "synced"
    assert json.loads(run(cache, *words, "--json")[1]) == reported


def test_prebuilt_jar_serves_its_line_where_there_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jar in the package is used without a compiler by the release it was built for and by others of its line, and by
    no other line or source."""
    prebuilt = tmp_path / "prebuilt"
    prebuilt.mkdir()
    monkeypatch.setattr("holdfast.client.spark.jar._PREBUILT", prebuilt)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    versions = ("4.1.2", "4.1.0", "4.2.1")
    built, sibling, other = (Spark(tmp_path, each, "2.13", (4, int(each[2]))) for each in versions)
    name = _plan(built)[0]
    (prebuilt / name).touch()
    (prebuilt / name.replace(_plan(built)[2], "0" * 16).replace("4.1.2", "4.2.1")).touch()
    write_sum(prebuilt / name, prebuilt)
    assert jar(built) == jar(sibling) == prebuilt / name
    with pytest.raises(ConfigError, match="no Java compiler"):
        jar(other)


def test_a_prebuilt_jar_is_used_as_it_was_built_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar in the package that is not the one whose SHA-256 was recorded, or that has none, is an error that names it:
    nothing that was changed reaches an executor."""
    monkeypatch.setattr("holdfast.client.spark.jar._PREBUILT", tmp_path)
    spark = Spark(tmp_path, "4.1.2", "2.13", (4, 1))
    found = tmp_path / _plan(spark)[0]
    found.write_bytes(b"as it was built")
    with pytest.raises(ConfigError, match="is not as it was built"):
        jar(spark)
    write_sum(found, tmp_path)
    assert jar(spark) == found
    found.write_bytes(b"as it was Built")
    with pytest.raises(ConfigError, match=f"{found.name} is not as it was built.*[.]sha256; install holdfast again"):
        jar(spark)


@pytest.mark.long
def test_equal_sources_make_equal_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builds for one Spark, in other directories and with other file times of the sources, are equal byte by byte;
    the manifest names Spark and the compiler, and `sha256sum --check` agrees with what was recorded."""
    pytest.importorskip("pyspark")
    first = prebuild(installed_spark(), tmp_path / "first")
    sources = tmp_path / "jvm"
    shutil.copytree(ROOT / "client" / "jvm" / "src", sources / "src", copy_function=shutil.copyfile)
    monkeypatch.setattr("holdfast.client.spark.jar._JVM", sources)
    second = prebuild(installed_spark(), tmp_path / "elsewhere" / "second")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    assert f"Spark-Version: {installed_spark().version}\r\nBuild-Jdk: " in manifest
    subprocess.run(
        ["sha256sum", "--check", "--strict", f"{second.name}.sha256"], check=True, cwd=second.parent, timeout=60
    )


def test_a_secured_cluster_takes_both_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CA and token come as paths, by argument or environment, absolute and unread; one alone is refused. For a driver
    on another host, which may have them where `--files` puts them, they stay as they are given."""
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_CA", raising=False)
    monkeypatch.delenv("HOLDFAST_TOKEN_FILE", raising=False)
    keys = ("spark.holdfast.security.ca", "spark.holdfast.security.tokenFile")
    assert not any(key in conf("one:1", jar="local:/x.jar") for key in keys)
    given = conf("one:1", jar="local:/x.jar", ca="ca.pem", token_file="etl.token")
    assert [given[key] for key in keys] == [str(tmp_path / "ca.pem"), str(tmp_path / "etl.token")]
    away = conf("one:1", jar="local:/x.jar", ca="ca.pem", token_file="etl.token", deploy_mode="cluster")
    assert [away[key] for key in keys] == ["ca.pem", "etl.token"]
    with pytest.raises(ConfigError, match="deploy_mode is client or cluster, not 'yarn'"):
        conf("one:1", jar="local:/x.jar", deploy_mode="yarn")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"token_file .* is missing"):
        conf("one:1", jar="local:/x.jar", ca="ca.pem")
    monkeypatch.setenv("HOLDFAST_CA", "/etc/ca.pem")
    with pytest.raises(ConfigError, match="HOLDFAST_TOKEN_FILE"):
        conf("one:1", jar="local:/x.jar")
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", "/etc/token")
    assert [conf("one:1", jar="local:/x.jar")[key] for key in keys] == ["/etc/ca.pem", "/etc/token"]
