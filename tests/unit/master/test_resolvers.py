"""Where hosts are: every rule of the placement reference, 2.8, with real files and scripts."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from holdfast.common.errors import ConfigError
from holdfast.master.fleet.resolvers import (
    HostnameResolver,
    Places,
    ScriptResolver,
    StaticResolver,
    TableResolver,
    load_resolver,
)
from holdfast.master.placement.topology import DEFAULT_PLACE
from tests.support.waiting import wait_until


def script(path: Path, body: str) -> str:
    """A program."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def runs_in(group: int, process: psutil.Process) -> bool:
    """Whether a process that lives is in this group."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False


def test_nothing_in_nothing_out_and_the_default_where_nothing_is_known() -> None:
    """Same length, same order."""
    places = Places(StaticResolver())
    assert places.resolve([]) == []
    assert places.resolve(["a", "b", "a"]) == [DEFAULT_PLACE] * 3
    assert places.known("a") == ""  # there is nobody to ask


def test_a_table(tmp_path: Path) -> None:
    """Comments and blank lines are passed over; a reload reads it anew, and one that is wrong changes nothing."""
    path = tmp_path / "table"
    path.write_text("# racks\nh1 /a/r1\n\nh2\t/a/r2/  # new\n")
    places = Places(TableResolver(path))
    assert places.resolve(["h2", "h1", "h3"]) == ["/a/r2", "/a/r1", DEFAULT_PLACE]
    path.write_text("h1 /b/r1\n")
    assert places.resolve(["h1"]) == ["/a/r1"], "kept until the reload"
    places.reload()
    assert places.resolve(["h1", "h2"]) == ["/b/r1", DEFAULT_PLACE]
    for text, reason in (
        ("h1\n", "line 1 needs a host and a place"),
        ("h1 r1\n", "line 1: 'r1' is no place"),
        ("h1 /a/1\nh1 /a/2\n", "line 2: h1 has another place above"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=reason):
            places.reload()
        assert places.resolve(["h1"]) == ["/b/r1"]
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        TableResolver(path)


def test_a_script_is_called_with_batches_in_order(tmp_path: Path) -> None:
    """At most so many hosts in a call; what all calls print is in the order of the hosts."""
    calls = tmp_path / "calls"
    path = script(tmp_path / "s", f'echo "$#" >> {calls}\nfor h in "$@"; do echo "/r/$h"; done')
    hosts = [f"h{number}" for number in range(250)]
    assert ScriptResolver(path).resolve(hosts) == [f"/r/{host}" for host in hosts]
    assert calls.read_text().split() == ["0", "100", "100", "50"]


def test_a_script_that_fails_says_nothing_of_its_hosts(tmp_path: Path) -> None:
    """Another exit code, another number of words, too long: None for the hosts of that call, no others (B8)."""
    body = 'for h in "$@"; do case $h in bad) exit 3;; few) ;; slow) sleep 60;; *) echo /r/$h;; esac; done'
    resolver = ScriptResolver(script(tmp_path / "s", body), hosts_max=2, seconds_max=2.0)
    hosts = ["a", "b", "c", "bad", "few", "d", "slow", "e", "-x", "f", "g"]
    assert resolver.resolve(hosts) == ["/r/a", "/r/b", None, None, None, None, None, None, None, "/r/f", "/r/g"]


def test_a_script_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    """It costs as much memory as an answer may have, and what it started ends with it: in the group of processes that
    it wrote down is none."""
    path = script(tmp_path / "flood", f"[ $# = 0 ] && exit 0\necho $$ > {tmp_path}/group\nyes /a/b &\nwait")
    places = Places(ScriptResolver(path, seconds_max=1.0))
    assert places.resolve(["h1"]) == [DEFAULT_PLACE]
    assert places.known("h1") is None
    group = int((tmp_path / "group").read_text())
    wait_until(lambda: not [each for each in psutil.process_iter() if runs_in(group, each)], "its end")


def test_an_answer_as_long_as_may_be_is_read(tmp_path: Path) -> None:
    """A place of 10,000 letters for each of 100 hosts fits the pipe, which is read when the script has ended."""
    body = "word=$(head -c 9999 /dev/zero | tr '\\0' x)\nfor h; do echo /$word; done"
    hosts = [f"h{number}" for number in range(100)]
    assert ScriptResolver(script(tmp_path / "long", body)).resolve(hosts) == ["/" + "x" * 9_999] * 100


def test_a_child_that_leaves_its_session_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It holds the pipe open after the script has ended: what was printed until then is the answer."""
    child = tmp_path / "child"
    body = f"[ $# = 0 ] && exit 0\nsetsid sh -c 'echo $$ > {child}; exec sleep 90' &\nuntil [ -s {child} ]; do :; done"
    path = script(tmp_path / "daemon", f"{body}\necho /a/b")
    assert ScriptResolver(path, seconds_max=60.0).resolve(["h1"]) == ["/a/b"]
    os.kill(int(child.read_text()), signal.SIGKILL)


def test_one_odd_host_says_nothing_of_the_others(tmp_path: Path) -> None:
    """A host that could be an option, or that no argument can be, is not asked for; a class that fails for one is asked
    for each; a place that is too long to be recorded is none (B8)."""
    path = script(tmp_path / "fine", 'for host; do echo "/a/$host"; done')
    assert Places(ScriptResolver(path)).resolve(["h1", "-x", "h\0x", "h2"]) == [
        "/a/h1",
        DEFAULT_PLACE,
        DEFAULT_PLACE,
        "/a/h2",
    ]

    class Picky(StaticResolver):
        def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
            if "bad" in hosts:
                raise ValueError("bad")
            return ["/a/" + "é" * 200 if host == "long" else f"/a/{host}" for host in hosts]

    places = Places(Picky())
    assert places.resolve(["h1", "bad", "long"]) == ["/a/h1", DEFAULT_PLACE, DEFAULT_PLACE]


def test_a_script_that_cannot_work_is_refused_at_start(tmp_path: Path) -> None:
    """No name, no program, an exit code of its first call, no hosts allowed."""
    for path, reason in (
        ("", "is no program"),
        (str(tmp_path / "none"), "is no program"),
        (script(tmp_path / "s", "echo no >&2; exit 4"), r"ended with 4 \(no\)"),
    ):
        with pytest.raises(ConfigError, match=reason):
            ScriptResolver(path)
    with pytest.raises(ConfigError, match="at least 1 host"):
        ScriptResolver(script(tmp_path / "t", "true"), hosts_max=0)


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("east-r7-web-12.example.com", "/east/r7"),
        ("east-r7-web-12", "/east/r7"),
        ("east-r7-web", None),
        ("east-r7-web-1-2.example.com", None),
        ("moved-r7-web-12.example.com", "/west/r7"),
        ("odd", "/north/default-rack"),
        ("10.0.0.1", None),
    ],
)
def test_places_in_host_names(host: str, place: str | None) -> None:
    """Exactly four parts in the first label; an override replaces the region, and is enough by itself."""
    resolver = HostnameResolver("moved-r7-web-12.example.com:west;odd:north")
    assert list(resolver.resolve([host])) == [place]


def test_overrides_that_cannot_be_read_are_refused() -> None:
    """host:region;host:region and nothing else."""
    for wrong in ("a", "a:", ":b", "a:b/c"):
        with pytest.raises(ConfigError, match="host:region"):
            HostnameResolver(wrong)


class Moody:
    """A resolver of a user."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answers: dict[str, str | None] = {"a": "/r/1", "b": None, "c": "r1", "d": "/deep/er/1"}
        self.fails = False

    def resolve(self, hosts: Sequence[str]) -> Sequence[str | None]:
        """From the answers, or not at all."""
        self.asked.append(list(hosts))
        if self.fails:
            raise RuntimeError("moody")
        return [self.answers.get(host) for host in hosts]

    def reload(self) -> None:
        """Nothing."""


def test_what_was_found_is_kept_and_what_failed_is_asked_again() -> None:
    """Each host by itself: one that is unknown, no place, or of another depth gets the default and is not kept."""
    resolver = Moody()
    places = Places(resolver)
    assert places.resolve(["a", "b", "c", "d"]) == ["/r/1", DEFAULT_PLACE, DEFAULT_PLACE, DEFAULT_PLACE]
    assert [places.known(host) for host in "abcd"] == ["/r/1", None, None, None]
    resolver.answers["b"] = "/r/2"
    assert places.resolve(["a", "b"]) == ["/r/1", "/r/2"]
    assert resolver.asked == [["a", "b", "c", "d"], ["b"]]
    places.forget("a")
    resolver.answers["a"] = "/r/3"
    assert places.resolve(["a"]) == ["/r/3"]


def test_a_resolver_that_raises_costs_nothing_but_its_answer() -> None:
    """What is kept stands, the rest gets the default."""
    resolver = Moody()
    places = Places(resolver)
    places.resolve(["a"])
    resolver.fails = True
    assert places.resolve(["a", "b"]) == ["/r/1", DEFAULT_PLACE]


def test_a_resolver_that_is_not_installed_is_named() -> None:
    """And those that are."""
    with pytest.raises(ConfigError, match="no resolver 'mine' is installed"):
        load_resolver("mine", "")
