"""Writes a wheel of Holdfast with the Spark plug-in compiled for each line of Spark, and tries it without a compiler.

    python -m tests.write_wheel OUT [--wheel WHEEL] [--home DIR …]

WHEEL is one without jars; by default the one that tox has made (TOX_PACKAGE).
Each Spark comes as PySpark's source distribution, from the index that pip is set up for, unless a directory that holds
one is given with --home. Run by `tox -e wheel`.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from holdfast.client.spark.jar import installed_spark, prebuild

#: One release of each line. Without a compiler the others of the line are served by it, with one they compile.
VERSIONS = ("3.5.8", "4.0.5", "4.1.2", "4.2.1", "4.3.0")
SECONDS_MAX = 1800.0


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    tox_made = os.environ.get("TOX_PACKAGE")
    parser.add_argument("--wheel", type=Path, default=tox_made, required=not tox_made, help="a wheel without jars")
    parser.add_argument("--home", type=Path, action="append", default=[], help="a Spark that need not be downloaded")
    asked = parser.parse_args()
    here = {installed_spark(home).version: home for home in asked.home}
    with tempfile.TemporaryDirectory(prefix="holdfast-wheel-") as place:
        scratch = Path(place)
        run("wheel", "unpack", str(asked.wheel), "--dest", str(scratch))
        (unpacked,) = (path for path in scratch.iterdir() if path.is_dir())
        homes = {version: here.get(version) or fetch(version, scratch / "sparks") for version in VERSIONS}
        for version, home in homes.items():
            jar = prebuild(installed_spark(home), unpacked / "holdfast" / "client" / "jvm" / "prebuilt")
            print(f"Spark {version}: {jar.name}, {jar.stat().st_size >> 10} KiB", flush=True)
        asked.out.mkdir(parents=True, exist_ok=True)
        run("wheel", "pack", str(unpacked), "--dest-dir", str(asked.out))
        written = asked.out / asked.wheel.name
        try_out(written, scratch / "site", homes)
        print(f"{written}: {written.stat().st_size >> 10} KiB; every jar in it is found and used without a compiler")


def run(module: str, *words: str) -> None:
    """Run pip or wheel in this environment."""
    subprocess.run([sys.executable, "-m", module, *words], check=True, timeout=SECONDS_MAX, stdout=sys.stderr)


def fetch(version: str, directory: Path) -> Path:
    """Download a Spark and return its home, with nothing in it but the jars."""
    run("pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", f"--dest={directory}", f"pyspark=={version}")
    packed = directory / f"pyspark-{version}.tar.gz"
    home = directory / version
    (home / "jars").mkdir(parents=True)
    with tarfile.open(packed) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(f"pyspark-{version}/deps/jars/"):
                member.name = Path(member.name).name
                archive.extract(member, home / "jars", filter="data")
    packed.unlink()
    return home


def try_out(wheel: Path, site: Path, homes: dict[str, Path]) -> None:
    """Install the wheel by itself: `holdfast spark-jar` names a jar of the package for every Spark, and builds none."""
    run("pip", "install", "--quiet", "--no-deps", f"--target={site}", str(wheel))
    nothing = site.with_name("nothing")
    nothing.mkdir()
    environ = os.environ | {"PYTHONPATH": str(site), "PATH": str(nothing), "XDG_CACHE_HOME": str(nothing)}
    environ.pop("JAVA_HOME", None)
    for version, home in homes.items():
        command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", "spark-jar", "--spark-home", str(home)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=SECONDS_MAX)
        found = Path(done.stdout.strip())
        if done.returncode or site not in found.parents or f"-{version}_" not in found.name:
            sys.exit(f"Spark {version}: no jar of the wheel is used: {done.stdout}{done.stderr}")
    if left := list(nothing.iterdir()):
        sys.exit(f"something was built: {left}")


if __name__ == "__main__":
    main()
