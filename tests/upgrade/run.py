"""Builds an earlier commit and has it and this tree run side by side: `python -m tests.upgrade.run --from COMMIT`.

A cluster of the earlier build is upgraded server by server to this one, and taken back again. After each step a client
of either build writes and commits, and both read all that was ever written. Exit 0 if nothing was lost or refused; else
the step at which it was, which is where N and N-1 do not go together.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from tests.support.tree import ROOT
from tests.upgrade import job

APP = "upgrade"
_SECONDS_MAX = 600


@dataclass
class Story:
    """What was written so far, by whom."""

    endpoints: str
    pythons: dict[str, str]
    steps: list[str] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    def check(self, step: str) -> None:
        """Have both clients write, then both read everything."""
        self.steps.append(step)
        for build in self.pythons:
            number = len(self.written) * 2
            self._run(build, "write", [number])
            self.written.append(number)
        for build in self.pythons:
            self._run(build, "read", self.written)
        sys.stdout.write(f"{step}: {len(self.written) * 2} shuffles, read by both\n")
        sys.stdout.flush()

    def _run(self, build: str, what: str, numbers: Sequence[int]) -> None:
        command = [self.pythons[build], "-P", job.__file__, what, self.endpoints, APP, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX)
        if done.returncode:
            raise SystemExit(f"{self.steps[-1]}: a client of the {build} build cannot {what}:\n{done.stderr[-3000:]}")


class Builds:
    """Starts each server with the interpreter of the build that it is to be."""

    def __init__(self, pythons: dict[str, str]) -> None:
        self._pythons = pythons
        self.build = dict.fromkeys(("m1", "m2", "m3", "w1", "w2"), "old")
        launch = Server._launch

        def launched(server: Server) -> None:
            own, sys.executable = sys.executable, self._pythons[self.build[server.name]]
            try:
                launch(server)
            finally:
                sys.executable = own

        setattr(Server, "_launch", launched)  # noqa: B010 - a door for this test alone

    def change(self, cluster: LocalCluster, server: Server, build: str) -> None:
        """End a server in order, and start it again as the other build."""
        server.stop()
        self.build[server.name] = build
        server.start()
        cluster.leader()
        cluster.wait_ready()


def tell(story: Story, builds: Builds, cluster: LocalCluster) -> None:
    """Forwards and back: masters, the leader last, then workers; back the other way round."""
    story.check("all are old")
    leader = cluster.leader()
    masters = [*(each for each in cluster.masters if each is not leader), leader]
    for server in (*masters, *cluster.workers):
        builds.change(cluster, server, "new")
        story.check(f"{server.name} is new")
    for server in (*reversed(cluster.workers), *reversed(masters)):
        builds.change(cluster, server, "old")
        story.check(f"{server.name} is old again")


def old_python(commit: str, directory: Path) -> str:
    """An environment with the wheel of that commit; returns its interpreter."""
    source = directory / "source"
    source.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if archive.returncode:
        raise SystemExit(f"there is no commit {commit} here: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{source}[tools]"], check=True
    )
    return python


def latest_tag() -> str:
    """The tag before this tree."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit("there is no release yet, so name what to upgrade from: tox -e upgrade -- --from COMMIT")
    return done.stdout.strip()


def main(arguments: list[str] | None = None) -> None:
    """Build, start, upgrade, take back."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.run", description=__doc__)
    parser.add_argument("--from", dest="commit", help="commit or tag of the older build; default: the latest tag")
    options = parser.parse_args(arguments)
    commit = options.commit or latest_tag()
    with tempfile.TemporaryDirectory(prefix="holdfast-upgrade-") as directory:
        pythons = {"old": old_python(commit, Path(directory)), "new": sys.executable}
        builds = Builds(pythons)
        with (
            local_cluster(masters=3, workers=2, dir=Path(directory) / "cluster") as cluster,
            Session(cluster.endpoints, app=APP),
        ):
            story = Story(cluster.endpoints, pythons)
            tell(story, builds, cluster)
    sys.stdout.write(f"{commit} and this tree run side by side: {len(story.steps)} steps, nothing lost or refused\n")


if __name__ == "__main__":
    main()
