"""Gathers facts of Spark on this host: settings of a file, the jars they name, Java, and the Pythons it would run."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from holdfast.common.errors import ConfigError
from holdfast.common.system.files import read_small_text
from holdfast.tools.doctor.core.facts import JarFact, PythonFact, SparkFact
from holdfast.tools.doctor.core.spark import class_path, parse_settings

_SECONDS = 60.0
_CLASS = "org/apache/spark/shuffle/holdfast/HoldfastShuffleManager.class"
_LOOK = """import importlib.util as u, sys
def there(name):
    try: return bool(u.find_spec(name))
    except ImportError: return False  # not even what it is in
print('%d.%d' % sys.version_info[:2], all(map(there, ('holdfast.client', 'numpy', 'pyarrow'))))"""


def gather_spark(file: Path, environ: Mapping[str, str] = os.environ) -> SparkFact:
    """What spark-defaults.conf (or a file for --properties-file) sets, and what is on this host. Raises ConfigError."""
    settings = read_settings(file)
    spark, jar_name = _installed()
    java_command, java = _java(environ)
    of_workers = ("spark.pyspark.python", "PYSPARK_PYTHON")
    of_driver = ("spark.pyspark.driver.python", "PYSPARK_DRIVER_PYTHON", *of_workers)
    driver_setting, driver = _first(settings, environ, *of_driver)
    workers_setting, workers = _first(settings, environ, *of_workers)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return SparkFact(
        source=file.name,
        settings=settings,
        jars=tuple(jar for setting, path in class_path(settings) for jar in _jars(setting, path)),
        spark=spark,
        jar_name=jar_name,
        java=java,
        java_command=java_command,
        driver=_python(driver or "python3", driver_setting or "PYSPARK_DRIVER_PYTHON, which is not set:")
        if driver or find_spec("pyspark") is None  # drivers run with another Python then than this one
        else PythonFact(command=sys.executable, setting="this Python", version=own, has_holdfast=True),
        workers=_python(workers or "python3", workers_setting or "PYSPARK_PYTHON, which is not set:"),
    )


def read_settings(file: Path) -> dict[str, str]:
    """What the file sets. Raises ConfigError."""
    try:
        return parse_settings(read_small_text(file, "Spark's settings"))
    except ConfigError as error:
        raise ConfigError(f"{error}; give --spark-conf a file such as spark-defaults.conf") from error


def _first(settings: Mapping[str, str], environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """The first of these settings or variables that is set, and its value."""
    for name in names:
        value = (settings if name.startswith("spark.") else environ).get(name, "")
        if value:
            return name, value
    return "", ""


def _jars(setting: str, path: str) -> list[JarFact]:
    """A class path entry as Java takes it: a file, a folder, or a folder's jars as folder/*."""
    scheme = re.match(r"([a-z][a-z0-9+.-]+):", path)
    if scheme and scheme[1] not in ("file", "local"):
        return [JarFact(path=path, setting=setting, remote=True)]
    plain = re.sub(r"^(file|local):(//)?", "", path)
    names = sorted(glob.glob(plain + ".jar" if plain.endswith("/*") else plain)) or [plain]
    return [
        JarFact(path=name, setting=setting, exists=os.path.exists(name), has_plugin=_has_plugin(name)) for name in names
    ]


def _has_plugin(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return _CLASS in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return os.path.isfile(os.path.join(path, _CLASS))


def _installed() -> tuple[str, str]:
    from holdfast.client.spark.jar import installed_spark, jar_name

    try:
        spark = installed_spark()
        return spark.version, jar_name(spark)
    except ConfigError:
        return "", ""


def _java(environ: Mapping[str, str]) -> tuple[str, int]:
    """The command that Spark would start, and its major version; 0 if it does not run."""
    home = environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run([command, "-version"], check=False, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return command, 0
    version = re.search(r'version "(?:1\.)?(\d+)', done.stdout + done.stderr)
    return command, int(version[1]) if version else 0


def _python(command: str, setting: str) -> PythonFact:
    found = shutil.which(command)
    if found is None:
        return PythonFact(command=command, setting=setting, error="program not found")
    try:
        done = subprocess.run([found, "-c", _LOOK], check=False, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return PythonFact(command=command, setting=setting, error=str(error))
    words = done.stdout.split()
    if len(words) == 2:
        return PythonFact(command=command, setting=setting, version=words[0], has_holdfast=words[1] == "True")
    version = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return PythonFact(command=command, setting=setting, error=version)
