"""The plug-in's jar: found, or compiled once against the Spark that is installed.

Rules: the jar is named after Spark's and Scala's version and a digest of the sources, so a changed source or another
Spark never meets an old jar. It is built beside its place and moved there, so that any number of builds at once leave
one whole file. Nothing outside the cache directory is written, nothing is downloaded. Called by settings.py and
`holdfast spark-jar`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

#: Where the sources are in the installed package, and jars that were built before it was packed.
_JVM = Path(__file__).resolve().parent.parent / "jvm"
_PREBUILT = _JVM / "prebuilt"
#: Beside a jar, by its name and this: its SHA-256, as `sha256sum --check` reads it.
_SUM = ".sha256"
_JDK_MIN = 17
_FLAGS = ("--release", "17", "-proc:none", "-nowarn", "-Xlint:none", "-encoding", "UTF-8")
_CORE_JAR = re.compile(r"spark-core_(\d+\.\d+)-((\d+)\.(\d+)\.[\w.-]+)\.jar")
_COMPILE_SECONDS_MAX = 600
_MANAGER_CLASS = "org/apache/spark/shuffle/holdfast/HoldfastShuffleManager.class"
_BUILT_FOR = re.compile(r"^Spark-Version: ((\d+)\.(\d+)\S*)", re.MULTILINE)
#: What Spark fetches, or has on all machines.
_ELSEWHERE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")
#: group:artifact:version, as Maven and `--packages` write it.
COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
#: Every entry of a jar gets this time, so that equal sources make equal jars.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class NoCompilerError(ConfigError):
    """There is no Java compiler, or none that is new enough."""


@dataclass(frozen=True)
class Spark:
    """A Spark that is installed: its directory of jars, and what it calls itself."""

    jars: Path
    version: str
    scala: str
    line: tuple[int, int]

    @property
    def shim(self) -> str:
        """The folder of sources for what differs between Spark's lines."""
        return "spark4" if self.line >= (4, 1) else "spark35"


def installed_spark(home: Path | None = None) -> Spark:
    """Return the Spark in `home`, else in SPARK_HOME, else the one that PySpark brought.

    Raises ConfigError if it is missing or older than 3.5.
    """
    place = home or (Path(os.environ["SPARK_HOME"]) if os.environ.get("SPARK_HOME") else _pyspark_home())
    if place is None:
        raise ConfigError("there is no Spark: pip install pyspark, or set SPARK_HOME to the directory of one")
    jars = place / "jars"
    for path in sorted(jars.glob("spark-core_*.jar")):
        found = _CORE_JAR.fullmatch(path.name)
        if found:
            line = int(found[3]), int(found[4])
            if line < (3, 5):
                raise ConfigError(f"Spark {found[2]} in {place} is too old: the plug-in needs 3.5 or later")
            return Spark(jars, found[2], found[1], line)
    raise ConfigError(f"there is no Spark in {place}: no file {jars}/spark-core_*.jar")


def jar(spark: Spark | None = None) -> Path:
    """Return the path of the plug-in's jar for this Spark (default: the installed one), compiling it if it has to be.

    A jar that came with the package serves if it was built for this very Spark; where there is no compiler, also if it
    was for another patch release of the same line. Raises ConfigError if there is no Spark or none of these can be had,
    if the one that came with the package is not as it was built, or if the sources do not compile against this Spark.
    """
    spark = spark or installed_spark()
    name, files, digest = _plan(spark)
    if (_PREBUILT / name).is_file():
        return _checked(_PREBUILT / name)
    place = _cache() / name
    if not (place.is_file() and _is_whole(place)):
        try:
            build(spark, files, place)
        except NoCompilerError:
            line = ".".join(map(str, spark.line))
            if near := sorted(_PREBUILT.glob(f"holdfast-spark-{line}.*_{spark.scala}-{digest}.jar")):
                return _checked(near[-1])
            raise
    return place


def check_jar(path: str, spark: Spark) -> None:
    """Raise ConfigError unless the jar is Holdfast's and built for this line of Spark. One that is elsewhere, as in
    hdfs://host/path or local:/path, is not looked at."""
    if _ELSEWHERE.match(path):
        return
    place = path.removeprefix("file:")
    find = "leave `jar` out, or take the one that `holdfast spark-jar` prints"
    try:
        with zipfile.ZipFile(place) as archive:
            names, manifest = archive.namelist(), archive.read("META-INF/MANIFEST.MF").decode("utf-8", "replace")
    except FileNotFoundError:
        raise ConfigError(f"there is no jar {place}: {find}") from None
    except KeyError:
        raise ConfigError(f"{place} is not Holdfast's jar: it has no manifest; {find}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{place} is no jar: {error}; {find}") from error
    if _MANAGER_CLASS not in names:
        raise ConfigError(f"{place} is not Holdfast's jar: it has no {_MANAGER_CLASS}; {find}")
    built = _BUILT_FOR.search(manifest)
    if built is not None and (int(built[2]), int(built[3])) != spark.line:
        raise ConfigError(f"{place} was built for Spark {built[1]}, and Spark {spark.version} is installed: {find}")


def check_coordinate(coordinate: str, spark: Spark) -> None:
    """Raise ConfigError if this Spark cannot take the plug-in from a Maven repository, or if it is not for this one."""
    if spark.line < (4, 0):
        raise ConfigError(
            f"{coordinate}: Spark {spark.version} makes the shuffle manager before executors fetch packages; name a jar"
            " by its path (`holdfast spark-jar` prints one)"
        )
    wanted = f"holdfast-spark-{spark.line[0]}.{spark.line[1]}_{spark.scala}"
    if coordinate.split(":")[1] != wanted:
        raise ConfigError(f"{coordinate} is not for Spark {spark.version}, which is installed: name {wanted}")


def jar_name(spark: Spark) -> str:
    """What the jar for this Spark is called, from this package's sources. Raises ConfigError if those are missing."""
    return _plan(spark)[0]


def prebuild(spark: Spark, directory: Path) -> Path:
    """Compile the plug-in for this Spark into `directory`, under the name by which `jar` finds it in a package. Equal
    sources, Sparks and compilers give equal bytes, wherever and whenever."""
    name, files, _ = _plan(spark)
    build(spark, files, directory / name)
    return directory / name


def write_sum(path: Path, directory: Path) -> Path:
    """Record the SHA-256 of a jar in `directory`, for `jar` to compare once both are side by side."""
    written = directory / (path.name + _SUM)
    written.write_text(_sum(path), "utf-8")
    return written


def _sum(path: Path) -> str:
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def _is_whole(path: Path) -> bool:
    """Whether the jar is what was recorded as it was built: the JVMs of all executors run it. That finds damage, not
    who may write both files."""
    recorded = path.with_name(path.name + _SUM)
    return recorded.is_file() and recorded.read_text("utf-8", "replace") == _sum(path)


def _checked(path: Path) -> Path:
    if not _is_whole(path):
        raise ConfigError(
            f"{path} is not as it was built: its SHA-256 is not in {path.name}{_SUM}; install holdfast again"
        )
    return path


def build(spark: Spark, files: Iterable[Path], place: Path, more_classpath: str = "") -> None:
    """Compile `files` against a Spark and leave the classes as the jar `place`, whole or not at all."""
    javac, version = _javac()
    log_event(LogEvent.PLUGIN_COMPILING, spark=spark.version, jar=place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=place.parent) as directory:
            classes = Path(directory) / "classes"
            classes.mkdir()
            _compile(javac, spark, files, classes, more_classpath)
            packed = Path(directory) / place.name
            _pack(classes, packed, f"Spark-Version: {spark.version}\r\nBuild-Jdk: {version}\r\n")
            packed.chmod(0o644)
            recorded = write_sum(packed, packed.parent)
            os.replace(recorded, place.with_name(recorded.name))
            os.replace(packed, place)
    except OSError as error:
        raise ConfigError(f"the jar cannot be written below {place.parent}: {error}; set XDG_CACHE_HOME") from error


def _plan(spark: Spark) -> tuple[str, list[Path], str]:
    """Name of the jar for this Spark, its sources, and their digest."""
    sources = _sources([_JVM / "src" / part / "java" for part in ("main", spark.shim)])
    digest = _digest(sources)
    return f"holdfast-spark-{spark.version}_{spark.scala}-{digest}.jar", [path for _, path in sources], digest


def _pyspark_home() -> Path | None:
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found and found.origin else None


def _sources(roots: Iterable[Path]) -> list[tuple[str, Path]]:
    """All sources below the roots, by their names, in one order everywhere."""
    found = sorted((path.relative_to(root).as_posix(), path) for root in roots for path in root.rglob("*.java"))
    if not found:
        raise ConfigError(f"the sources of the plug-in are not in {_JVM}: install holdfast again")
    return found


def _digest(sources: Iterable[tuple[str, Path]]) -> str:
    """16 hex digits over names, contents and compiler flags."""
    hashed = hashlib.sha256(" ".join(_FLAGS).encode())
    for name, path in sources:
        content = path.read_bytes()
        hashed.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return hashed.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holdfast"


def _javac() -> tuple[str, str]:
    """The compiler of JAVA_HOME, else of PATH, and its version. Raises ConfigError where none is new enough."""
    home = os.environ.get("JAVA_HOME")
    wanted = str(Path(home) / "bin" / "javac") if home else "javac"
    found = shutil.which(wanted) or (shutil.which("javac") if home else None)
    if found is None:
        raise NoCompilerError(
            "there is no Java compiler: install a JDK 17 or later (a JRE has none) "
            "and set JAVA_HOME, or have javac on PATH"
        )
    done = subprocess.run([found, "-version"], check=False, capture_output=True, text=True, timeout=60)
    version = re.search(r"javac ((?:1\.)?(\d+)\S*)", done.stdout + done.stderr)
    if done.returncode or version is None or int(version[2]) < _JDK_MIN:
        raise NoCompilerError(
            f"{found} is {version[0] if version else 'no Java compiler'}: the plug-in needs a JDK 17 or later"
        )
    return found, version[1]


def _compile(javac: str, spark: Spark, files: Iterable[Path], classes: Path, more_classpath: str) -> None:
    classpath = os.pathsep.join(filter(None, (f"{spark.jars}{os.sep}*", more_classpath)))
    names = classes.parent / "files"
    names.write_text("".join(f'"{str(path).replace(chr(92), chr(92) * 2)}"\n' for path in files), "utf-8")
    command = [javac, *_FLAGS, "-d", str(classes), "-classpath", classpath, f"@{names}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{javac} did not end within {_COMPILE_SECONDS_MAX} s") from error
    if done.returncode:
        first = "\n".join(done.stderr.splitlines()[:20])
        raise ConfigError(f"the plug-in does not compile against Spark {spark.version} in {spark.jars}:\n{first}")


def _pack(classes: Path, packed: Path, manifest: str) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            zipfile.ZipInfo("META-INF/MANIFEST.MF", _EPOCH),
            f"Manifest-Version: 1.0\r\n{manifest}\r\n",
        )
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
