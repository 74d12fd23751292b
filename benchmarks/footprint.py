"""What an installation takes: `python -m benchmarks.footprint [EXTRAS …]`, for each set of extras such as "tools".

Installs the tree into an environment of its own with pip, and prints the packages beside Holdfast and pip, their size
on disk with Holdfast, and the time of `import holdfast.client` (the least of seven fresh processes).
"""

import argparse
import json
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_RUNS = 7
_IMPORT = "import time; t = time.perf_counter(); import holdfast.client; print(time.perf_counter() - t)"
_SECONDS_MAX = 1_800.0


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "extras", nargs="*", default=[""], help="such as server or spark,tools; the bare package if none"
    )
    parser.add_argument("--source", type=Path, default=ROOT, help="another tree")
    options = parser.parse_args()
    for extras in options.extras:
        with tempfile.TemporaryDirectory(prefix="holdfast-footprint-") as place:
            print(measured(options.source, extras, Path(place)), flush=True)


def measured(source: Path, extras: str, directory: Path) -> str:
    """One line for one set of extras."""
    venv.create(directory, with_pip=True)
    python = str(directory / "bin" / "python")
    before = _bytes(directory)
    _run(python, "-m", "pip", "install", "--quiet", "--no-compile", f"{source}[{extras}]" if extras else str(source))
    packages = {one["name"] for one in json.loads(_run(python, "-m", "pip", "list", "--format=json"))}
    size = (_bytes(directory) - before) / 1e6
    seconds = min(float(_run(python, "-I", "-c", _IMPORT)) for _ in range(_RUNS))
    others = len(packages - {"holdfast", "pip", "setuptools"})
    return f"{extras or 'bare'}: {others} packages, {size:.1f} MB, import holdfast.client {1e3 * seconds:.1f} ms"


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=_SECONDS_MAX, cwd="/")
    return done.stdout


def _bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc")


if __name__ == "__main__":
    main()
