"""`holdfast ca` and `holdfast token`: what is useless is refused in a sentence, and no file is left half."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.common.security.authority import issue, keep, make_ca
from holdfast.common.security.tokens import times_of
from holdfast.tools.cli.main import run

COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main"]
SECONDS_MAX = 60.0


def files(directory: Path) -> dict[str, bytes]:
    """What is there, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def secret(tmp_path: Path) -> Path:
    """A cluster's secret."""
    made = tmp_path / "secret"
    made.write_text("0123456789abcdef" * 2)
    made.chmod(0o600)
    return made


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("w1", "münchen.de"),
        ("w1", ""),
        ("w1", "10.0.0.1:7070"),
        ("w1", "w1.example.org:7070"),
        ("w1", "[::1]"),
        ("w1", "10.0.0.300"),
        ("w1", "two words"),
        ("w1", "a" * 64 + ".example"),
        ("..", "w1.example.org"),
        ("", "w1.example.org"),
        ("a/b", "w1.example.org"),
        ("a\nb", "w1.example.org"),
    ],
)
def test_certificates_that_nobody_could_use_are_refused(
    tmp_path: Path, name: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host that is none and a name that names no file are told, with status 2, and nothing is made."""
    make_ca(tmp_path)
    before = files(tmp_path)
    assert run(["ca", "issue", str(tmp_path), "--host", host, "--", name]) == 2
    assert "such as w1.example.org" in (reported := capsys.readouterr().err) or "is no such name" in reported
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "host", ["w1", "w1.example.org", "*.example.org", "10.0.0.1", "::1", "xn--mnchen-3ya.de", "r2_d2"]
)
def test_hosts_as_people_have_them_are_taken(tmp_path: Path, host: str) -> None:
    """Names, wildcards and addresses of both kinds make a certificate."""
    make_ca(tmp_path)
    assert issue(tmp_path, "w1", [host])[0].is_file()


@pytest.mark.parametrize("where", ["file", "/proc/holdfast"])
def test_a_ca_wants_a_directory(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, and a place where none can be made, are told in a sentence."""
    (tmp_path / "file").touch()
    assert run(["ca", "init", str(tmp_path / where)]) == 2
    assert "name a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--days", "nan"],
        ["--days", "inf"],
        ["--days", "1e300"],
        ["--name", "n" * 2000],
        ["--name", "a\udcff"],
        ["--cluster", "c\udcff"],
    ],
    ids=lambda words: f"{words[0]} {words[1][:9]!a}",
)
def test_tokens_that_nobody_could_use_are_refused(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Lives without end, and names that no token can hold, are told with status 2, and no token is made."""
    common = ["token", "--kind", "admin", "--name", "ops", "--cluster", "c", "--secret-file", str(secret(tmp_path))]
    assert run([*common, *words]) == 2
    reported = capsys.readouterr()
    assert (words[0] if "\udcff" not in words[1] else f"{words[1]!r} is not text in UTF-8") in reported.err
    assert reported.out == ""


def test_a_token_is_written_where_a_file_was_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--out replaces a file after a yes, and its mode becomes 0600; where nobody can be asked it stays. Links, devices
    and directories stay as they are."""
    common = ["token", "--kind", "admin", "--cluster", "c", "--secret-file", str(secret(tmp_path)), "--out"]
    out, other, link, pipe = (tmp_path / name for name in ("token", "other", "link", "pipe"))
    for path in (out, other):
        path.write_text("before")
        path.chmod(0o644)
    assert run([*common, str(out)]) == 2
    assert f"this replaces {out}\n" in capsys.readouterr().err
    assert out.read_text() == "before"
    assert run([*common, str(out), "--yes"]) == 0
    assert times_of(out.read_text().strip())[1] > time.time()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    link.symlink_to(other)
    os.mkfifo(pipe, 0o644)
    for wrong in (link, pipe, tmp_path):
        assert run([*common, str(wrong)]) == 2
        assert "not a regular file" in capsys.readouterr().err
    assert other.read_text() == "before"
    assert stat.S_IMODE(other.stat().st_mode) == stat.S_IMODE(pipe.stat().st_mode) == 0o644


def test_a_full_disk_leaves_nothing_half(tmp_path: Path) -> None:
    """Where no byte can be written, `ca init` and `token --out` say so with status 1, and leave no file."""
    made = tmp_path / "made"
    made.mkdir()
    token = ["token", "--kind", "admin", "--cluster", "c", "--secret-file", str(secret(tmp_path)), "--out"]
    for words in (["ca", "init", str(made)], [*token, str(made / "token")]):
        done = subprocess.run(
            COMMAND + words,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
        assert done.returncode == 1, done
        assert "cannot write" in done.stderr
        assert files(made) == {}


def test_standard_output_that_takes_nothing_is_reported(tmp_path: Path) -> None:
    """A token that could not be printed is status 1 and a sentence; a reader that leaves is no news."""
    words = ["token", "--kind", "admin", "--cluster", "c", "--secret-file", str(secret(tmp_path))]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            COMMAND + words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=SECONDS_MAX
        )
    assert done.returncode == 1
    assert done.stderr == "holdfast: standard output takes no more: No space left on device\n"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        COMMAND + words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=SECONDS_MAX
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_is_there_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second `ca init` and a second `ca issue` of a name are refused; files stay byte for byte."""
    make_ca(tmp_path)
    issue(tmp_path, "w1", ["w1"])
    before = files(tmp_path)
    for words in (["init", str(tmp_path)], ["issue", str(tmp_path), "w1"]):
        assert run(["ca", *words]) == 2
        assert "exists already" in capsys.readouterr().err
    (tmp_path / "w2.key").write_text("something else")
    assert run(["ca", "issue", str(tmp_path), "w2"]) == 2
    assert files(tmp_path) == {**before, "w2.key": b"something else"}


@pytest.mark.parametrize(
    ("empty", "gone"),
    [
        (["ca.key"], ["ca.pem", "server.key", "server.pem"]),
        ([], ["ca.pem", "server.key", "server.pem"]),
        (["ca.pem"], ["server.key", "server.pem"]),
        ([], ["server.key", "server.pem"]),
        (["server.key"], ["server.pem"]),
        ([], ["server.pem"]),
        (["server.pem"], []),
        (["ca.key"], []),
    ],
    ids=str,
)
def test_what_a_kill_left_is_completed(tmp_path: Path, empty: list[str], gone: list[str]) -> None:
    """Whichever files are empty or not there yet, the next try has a whole pair that the CA vouches for, and a CA that
    was whole is the same one."""
    keep(tmp_path, "server", ["127.0.0.1"])
    before = files(tmp_path)
    for name in gone:
        (tmp_path / name).unlink()
    for name in empty:
        (tmp_path / name).write_bytes(b"")
    keep(tmp_path, "server", ["127.0.0.1"])
    after = files(tmp_path)
    assert sorted(after) == ["ca.key", "ca.pem", "server.key", "server.pem"]
    assert all(after.values())
    if not {"ca.key", "ca.pem"} & {*empty, *gone}:
        assert after["ca.pem"] == before["ca.pem"]
    keep(tmp_path, "server", ["127.0.0.1"])
    assert files(tmp_path) == after


def test_a_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    """One with days left, and one without the host, are made anew by the same CA; one with months left stays."""
    make_ca(tmp_path)
    for days, hosts, anew in ((9, ["127.0.0.1"], True), (365, ["w1"], True), (90, ["127.0.0.1"], False)):
        issue(tmp_path, "server", hosts, days, anew=True)
        before = files(tmp_path)
        keep(tmp_path, "server", ["127.0.0.1"])
        assert (files(tmp_path)["server.pem"] != before["server.pem"]) is anew
        assert files(tmp_path)["ca.pem"] == before["ca.pem"]


def test_configurations_and_tokens_without_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no small file is told after some MiB and not read until memory ends."""
    common = ["token", "--kind", "admin", "--cluster", "c", "--secret-file"]
    for words in (["doctor", "--config", "/dev/zero"], ["doctor", "--spark-conf", "/dev/zero"]):
        assert run(words) == 2
        assert "/dev/zero holds more than 4.0 MiB" in capsys.readouterr().err
    large = tmp_path / "large"
    large.write_bytes(bytes(5 << 20))
    large.chmod(0o600)
    assert run([*common, str(large)]) == 2
    assert "holds more than" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["export", "app/²", "--to", "x"], ["status"]], ids=["export", "endpoints"])
def test_digits_of_other_scripts_are_no_numbers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A superscript two names neither a shuffle nor a port."""
    assert run([*words, "--masters", "127.0.0.1:²" if words == ["status"] else "127.0.0.1:7070"]) == 2
    assert "²" in capsys.readouterr().err


def test_what_is_made_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ca` names its files and `token` what it made, as one document; a token in a file is not printed as well."""
    assert run(["ca", "init", str(tmp_path / "ca"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": [str(tmp_path / "ca" / "ca.pem")]}
    assert run(["ca", "issue", str(tmp_path / "ca"), "w1", "--json"]) == 0
    assert [Path(each).name for each in json.loads(capsys.readouterr().out)["files"]] == ["w1.pem", "w1.key"]
    words = ["token", "--kind", "user", "--name", "ann", "--cluster", "c", "--secret-file", str(secret(tmp_path))]
    assert run([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["kind"], made["name"], made["ends_s"]) == ("user", "ann", times_of(made["token"])[1])
    assert run([*words, "--json", "--out", str(tmp_path / "token")]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert (kept["file"], "token" in kept) == (str(tmp_path / "token"), False)
