"""Judges Spark's settings: whether shuffles go through Holdfast with them, and what works against it.

The keys and their values are those of HoldfastConf.java; a test compares the two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.common.limits import COPIES_MAX
from holdfast.common.sizes import counted
from holdfast.common.tags import TAG
from holdfast.common.version import installing
from holdfast.tools.doctor.core.facts import Cluster, JarFact, SparkFact
from holdfast.tools.doctor.core.findings import Symptom, advice, problem

PREFIX = "spark.holdfast."
PACKAGE = "org.apache.spark.shuffle.holdfast"
MANAGER, DATA_IO = f"{PACKAGE}.HoldfastShuffleManager", f"{PACKAGE}.HoldfastShuffleDataIO"
CLASS_PATHS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
JAVA_LEAST = 17

_TEXT, _TRUTH = re.compile(r".*"), re.compile(r"true|false")
_NUMBER, _SIZE = re.compile(r"\d+"), re.compile(r"\d+ *([kmgtp]i?b?|b)?", re.IGNORECASE)
_TIME = re.compile(r"\d+ *(us|ms|s|m|min|h|d)?", re.IGNORECASE)
#: Each key without the prefix, and what its value looks like.
KEYS: dict[str, re.Pattern[str]] = {
    "master.endpoints": re.compile(r"[^\s,]+:\d+( *, *[^\s,]+:\d+)*"),
    "cluster.id": _TEXT,
    "replication": re.compile(rf"[1-{COPIES_MAX}]"),
    "replication.strict": _TRUTH,
    "ack": re.compile(r"memory|written|synced", re.IGNORECASE),
    "ack.copies": re.compile(rf"[1-{COPIES_MAX}]"),
    "fallback": re.compile(r"auto|never", re.IGNORECASE),
    "codec": re.compile(r"none|lz4|zstd", re.IGNORECASE),
    "codec.rowPlanes": _TRUTH,
    "push.buffer": _SIZE,
    "push.frame": _SIZE,
    "push.open": _SIZE,
    "push.inFlight": _SIZE,
    "push.memoryGrace": _TIME,
    "memory.overheadShare": re.compile(r"0*\.\d+|0*1(\.0*)?"),
    "no_room.grace": _TIME,
    "fetch.inFlight": _SIZE,
    "fetch.workers": _NUMBER,
    "fetch.reachGrace": _TIME,
    "fetch.returnGrace": _TIME,
    "fetch.order": re.compile(r"given|health|region", re.IGNORECASE),
    "fetch.region": _TEXT,
    "fetch.pendingThreshold": _NUMBER,
    "fetch.failureExpire": _TIME,
    "fetch.slowExpire": _TIME,
    "fetch.remoteInterleave": re.compile(r"once|every", re.IGNORECASE),
    "fetch.speculative": _TRUTH,
    "fetch.speculativeDelay": _TIME,
    "lease": _TIME,
    "request.timeout": _TIME,
    "register.timeout": _TIME,
    "tags": re.compile(rf"{TAG}( *, *{TAG})*"),
    "security.ca": _TEXT,
    "security.tokenFile": _TEXT,
}
_DYNAMIC, _SERVICE = "spark.dynamicAllocation.enabled", "spark.shuffle.service.enabled"
_TRACKING = "spark.dynamicAllocation.shuffleTracking.enabled"
_TIMEOUT = "spark.dynamicAllocation.shuffleTracking.timeout"
#: Where Spark gets jars from: paths, and coordinates of Maven.
_JARS = ("spark.jars", "spark.jars.packages")
#: Both or neither.
_SECURITY = ("security.ca", "security.tokenFile")


@dataclass(frozen=True, slots=True)
class _Beside:
    """A setting of Spark that matters: what it does unless it is as wanted."""

    key: str
    wanted: str
    usual: str
    reason: str


_BESIDE = (
    _Beside("spark.shuffle.push.enabled", "false", "false", "Spark's own pushing has nothing to push here"),
    _Beside(
        "spark.sql.adaptive.localShuffleReader.enabled",
        "false",
        "true",
        "adaptive queries plan reads for hosts that hold no shuffle data",
    ),
    _Beside(
        "spark.shuffle.reduceLocality.enabled",
        "false",
        "true",
        "the driver computes places for reduce tasks that have none",
    ),
    _Beside(
        _TRACKING,
        "false",
        "true",
        "executors are kept for shuffle data that they do not hold",
    ),
    _Beside(
        "spark.serializer",
        "org.apache.spark.serializer.KryoSerializer",
        "org.apache.spark.serializer.JavaSerializer",
        "shuffles of RDDs are serialised record by record in a slow form",
    ),
)
#: Further ones that are looked at here.
_PUBLIC = (
    *("spark.shuffle.manager", "spark.shuffle.sort.io.plugin.class", *_JARS),
    *(_DYNAMIC, _SERVICE, _TRACKING, _TIMEOUT),
)
_ARTIFACT = "holdfast-spark-"
_JAR_NAME = re.compile(rf"{_ARTIFACT}(\d+\.\d+)\.[^_]*_[\d.]+-([0-9a-f]+)\.jar")


def parse_settings(text: str) -> dict[str, str]:
    """Lines of spark-defaults.conf: a key, then blanks, `=` or `:`, then the value; the last one of a key counts."""
    found = {}
    for line in text.splitlines():
        words = re.split(r"\s*[=:]\s*|\s+", line.strip(), maxsplit=1)
        if words[0] and not words[0].startswith(("#", "!")):
            found[words[0]] = words[1].strip() if len(words) > 1 else ""
    return found


def public_settings(settings: Mapping[str, str], removed: str) -> dict[str, str]:
    """The settings, with values only of keys that are known here; any other may hold a secret, whatever its name."""
    public = {*(PREFIX + key for key in KEYS), *CLASS_PATHS, *(each.key for each in _BESIDE), *_PUBLIC}
    return {key: value if key in public else removed for key, value in sorted(settings.items())}


def class_path(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (setting, path) of whatever may be the plug-in's jar."""
    for setting in _JARS:
        for path in settings.get(setting, "").split(","):
            if path.strip() and (setting == "spark.jars" or _ARTIFACT in path):
                yield setting, path.strip()
    for setting in CLASS_PATHS:
        for path in settings.get(setting, "").split(":"):
            if path.strip():
                yield setting, path.strip()


def check_spark(spark: SparkFact, cluster: Cluster | None) -> Iterator[Symptom]:
    """All that can be said of the settings, of the jar, of Java and of the Pythons."""
    settings = spark.settings
    if settings.get("spark.shuffle.manager") != MANAGER:
        found = settings.get("spark.shuffle.manager", "") or "not set"
        remedy = f"set spark.shuffle.manager={MANAGER}; `holdfast spark-conf` prints all that is needed"
        yield problem("spark-manager", spark.source, f"it is {found}: no shuffle uses Holdfast", remedy)
    yield from _keys(spark)
    yield from _endpoints(spark, cluster)
    yield from _secured(spark, cluster)
    yield from _conflicts(spark)
    yield from _replication(spark, cluster)
    yield from _jar(spark)
    yield from _java(spark)
    yield from _pythons(spark)


def _keys(spark: SparkFact) -> Iterator[Symptom]:
    for key, value in spark.settings.items():
        name = key.removeprefix(PREFIX)
        if name == key:
            continue
        where = f"{spark.source} {key}"
        if name not in KEYS:
            near = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.5)
            remedy = f"write {PREFIX}{near[0]}" if near else "take it out; docs/use/spark.md lists those that there are"
            yield problem("spark-key", where, "is not a setting of the plug-in, and prevents Spark's start", remedy)
        elif not KEYS[name].fullmatch(value):
            remedy = f"see docs/use/spark.md for what {name} takes"
            yield problem("spark-key", where, f'has the value "{value}", which prevents Spark\'s start', remedy)
    given = [key for key in _SECURITY if spark.settings.get(PREFIX + key)]
    if len(given) == 1:
        missing = next(key for key in _SECURITY if key not in given)
        what = f"{PREFIX}{given[0]} is set without {PREFIX}{missing}, which prevents Spark's start"
        yield problem("spark-key", spark.source, what, f"set {PREFIX}{missing} as well, or neither without security")


def _endpoints(spark: SparkFact, cluster: Cluster | None) -> Iterator[Symptom]:
    text = spark.settings.get(f"{PREFIX}master.endpoints", "")
    named = {each.strip() for each in text.split(",") if each.strip()}
    if not named:
        what = "master.endpoints is not set, which prevents Spark's start"
        remedy = f"set {PREFIX}master.endpoints=host:port,host:port,host:port, the masters' HTTP addresses"
        yield problem("spark-endpoints", spark.source, what, remedy)
        return
    answering = [each for each in cluster.masters if not each.error] if cluster else []
    there = {http for each in answering for _, http in each.peers}
    if there and not named & (there | {each.address for each in answering}):
        where = f"{spark.source} {PREFIX}master.endpoints"
        what = f"{text} is none of the masters {', '.join(sorted(there))}"
        yield problem("spark-endpoints", where, what, "name the masters' HTTP ports")


def _secured(spark: SparkFact, cluster: Cluster | None) -> Iterator[Symptom]:
    if cluster is not None and cluster.secured and not any(spark.settings.get(PREFIX + key) for key in _SECURITY):
        what = "the masters require TLS and a token, and the settings name neither: no job starts"
        remedy = f"set {' and '.join(PREFIX + key for key in _SECURITY)} (docs/operate/security.md)"
        yield problem("spark-security", spark.source, what, remedy)


def _conflicts(spark: SparkFact) -> Iterator[Symptom]:
    if spark.settings.get("spark.shuffle.sort.io.plugin.class") != DATA_IO:
        what = (
            "spark.shuffle.sort.io.plugin.class is not Holdfast's: maps that lost nothing run again when executors go"
        )
        level = problem if _is_true(spark, _DYNAMIC) else advice
        yield level("spark-conflict", spark.source, what, f"set spark.shuffle.sort.io.plugin.class={DATA_IO}")
    yield from _fallback(spark)
    for each in _BESIDE:
        value = spark.settings.get(each.key, each.usual)
        if value.lower() != each.wanted.lower():
            where, remedy = f"{spark.source} {each.key}", f"set {each.key}={each.wanted}"
            yield advice("spark-conflict", where, f"is {value}: {each.reason}", remedy)


def _fallback(spark: SparkFact) -> Iterator[Symptom]:
    """What falls back is Spark's, and lies where Spark wants it: in its shuffle service, or on executors that stay."""
    key, service = f"{PREFIX}fallback", _is_true(spark, _SERVICE)
    if spark.settings.get(key, "auto").lower() == "never":
        if service:
            what = "is true: executors end where Spark's shuffle service does not run, and no shuffle falls back to it"
            yield problem("spark-conflict", f"{spark.source} {_SERVICE}", what, f"set {_SERVICE}=false")
    elif _is_true(spark, _DYNAMIC) and not service and not _tracks(spark):
        what = "is never with dynamic allocation, which would remove executors with what fell back"
        others = f"{_SERVICE}=true, where it runs, or {_TRACKING}=true without {_TIMEOUT}"
        remedy = f"set {key}=never; or to let shuffles fall back {others}"
        yield advice("spark-conflict", f"{spark.source} {key}", what, remedy)


def _tracks(spark: SparkFact) -> bool:
    """Whether executors stay for as long as shuffles that they have are needed."""
    return _is_true(spark, _TRACKING, "true") and _TIMEOUT not in spark.settings


def _is_true(spark: SparkFact, key: str, usual: str = "false") -> bool:
    return spark.settings.get(key, usual).lower() == "true"


def _replication(spark: SparkFact, cluster: Cluster | None) -> Iterator[Symptom]:
    asked = spark.settings.get(f"{PREFIX}replication", "1")
    if not KEYS["replication"].fullmatch(asked) or cluster is None or cluster.workers_error:
        return
    copies = int(asked)
    hosts = {each.host for each in cluster.workers if each.state == "alive"}
    if len(hosts) < copies and any(not each.error for each in cluster.masters):
        strict = spark.settings.get(f"{PREFIX}replication.strict", "").lower() == "true"
        text = f"there are workers on {len(hosts)} of the {copies} hosts that {copies} copies need"
        fewer = counted(max(len(hosts), 1), "copy")
        becomes = "shuffles wait and fail" if strict else f"there is {fewer} only"
        remedy = (
            "start workers on more hosts (several on one machine with different worker.host only pretend), or ask for "
            "fewer"
        )
        yield problem("spark-replication", f"{spark.source} {PREFIX}replication", f"{text}: {becomes}", remedy)


def _jar(spark: SparkFact) -> Iterator[Symptom]:
    if spark.settings.get("spark.shuffle.manager") != MANAGER:
        return
    make = "put there what `holdfast spark-jar` prints, on every host where it is no shared path"
    for jar in spark.jars:
        if jar.path.endswith(".jar") and not jar.exists and not jar.remote:
            yield problem("spark-jar", f"{spark.source} {jar.setting}", f"there is no file {jar.path}", make)
    found = [jar for jar in spark.jars if jar.has_plugin]
    if not found and not any(jar.remote or not jar.exists for jar in spark.jars):
        what = f"neither spark.jars nor {' nor '.join(CLASS_PATHS)} has the plug-in's jar"
        yield problem("spark-jar", spark.source, what, f"name it there: {make}")
    line = ".".join(spark.spark.split(".")[:2])
    for jar in found:
        yield from _of_this_spark(spark, jar, line, make)
    if line == "3.5" and found and {jar.setting for jar in found} != set(CLASS_PATHS):
        what = "Spark 3.5 makes the shuffle manager before it fetches spark.jars (SPARK-45762)"
        yield problem("spark-jar", spark.source, what, f"name the jar in {' and '.join(CLASS_PATHS)}")


def _of_this_spark(spark: SparkFact, jar: JarFact, line: str, make: str) -> Iterator[Symptom]:
    text = _JAR_NAME.search(jar.path)
    where = f"{spark.source} {jar.setting}"
    if text is None or not line:
        return
    if text[1] != line:
        what = f"{jar.path} was compiled for Spark {text[1]}, and here is {spark.spark}"
        yield problem("spark-jar", where, what, make)
    elif spark.jar_name and text[2] not in spark.jar_name:
        what = f"{jar.path} was compiled from other sources than this Holdfast's ({spark.jar_name})"
        yield advice("spark-jar", where, what, make)


def _java(spark: SparkFact) -> Iterator[Symptom]:
    if spark.java < JAVA_LEAST:
        found = f"is Java {spark.java}" if spark.java else "is not there"
        remedy = f"install a JDK {JAVA_LEAST} or later and set JAVA_HOME (a JRE does where the jar is compiled already)"
        yield problem("java", spark.java_command, f"{found}, and the plug-in needs {JAVA_LEAST} or later", remedy)


def _pythons(spark: SparkFact) -> Iterator[Symptom]:
    driver, workers = spark.driver, spark.workers
    for each in filter(None, (driver, workers)):
        if each.error:
            remedy = f"set {each.setting} to an existing Python, such as the one that runs this"
            yield problem("pyspark-python", f"{each.setting} {each.command}", f"does not run: {each.error}", remedy)
            return
    if driver is None or workers is None:
        return
    where = f"{workers.setting} {workers.command}"
    if driver.version != workers.version:
        what = f"is Python {workers.version}, and the driver's is {driver.version}: PySpark refuses that"
        yield problem("pyspark-python", where, what, f"set PYSPARK_PYTHON to a Python {driver.version} on every host")
    elif spark.settings.get("spark.shuffle.manager") != MANAGER and driver.has_holdfast and not workers.has_holdfast:
        what = "cannot import holdfast.client, numpy and pyarrow, which shuffles without a jar need in Spark's workers"
        remedy = f"into it {installing('spark')}; or set PYSPARK_PYTHON to a Python that has it"
        yield advice("pyspark-python", where, what, remedy)
