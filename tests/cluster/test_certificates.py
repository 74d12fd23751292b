"""Servers whose certificate nobody would believe do not start, and say why; a local cluster renews what it made."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import local_cluster
from holdfast.common.config import config
from holdfast.common.config.config import Config
from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.security.authority import issue
from holdfast.common.security.server import ServerSecurity
from holdfast.common.system.ports import free_ports
from tests.support.certificates import Authority, Certificate
from tests.support.logged import logged

SECONDS_MAX = 60.0


def file_of(tmp_path: Path, certificate: Certificate, authority: Authority, sections: str) -> Path:
    """A server's file with [security]."""
    where, key = certificate.files(tmp_path)
    (tmp_path / "ca.pem").write_text(authority.pem)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    files = f'certificate = "{where}"\nkey_file = "{key}"\nca = "{tmp_path}/ca.pem"\n'
    text = f'{sections}\n[security]\nenabled = true\n{files}[cluster]\nsecret_file = "{secret}"\n'
    made = tmp_path / "server.toml"
    made.write_text(text)
    return made


def worker_section(tmp_path: Path) -> str:
    """A worker on loopback."""
    data, http = free_ports(2)
    ports = f'data_port = {data}\nhttp_port = {http}\nmasters = ["127.0.0.1:7070"]\n'
    return f'[worker]\nname = "w1"\n{ports}directories = [{{ path = "{tmp_path}/data", capacity = "1GiB" }}]\n'


def master_section(tmp_path: Path) -> str:
    """A master on loopback."""
    http, grpc, raft = free_ports(3)
    peer = f'{{ name = "m1", raft = "127.0.0.1:{raft}", http = "localhost:{http}" }}'
    ports = f"http_port = {http}\ngrpc_port = {grpc}\n"
    return f'[master]\nname = "m1"\n{ports}directory = "{tmp_path}/m1"\npeers = [{peer}]\n'


def parsed(path: Path) -> Config:
    """The configuration in that file."""
    return config.parse(path.read_text())


@pytest.mark.parametrize("role", ["master", "worker"])
@pytest.mark.parametrize(
    ("days", "host", "other", "words"),
    [
        (-1, "", False, "certificate has expired"),
        (9, "", True, "valid today"),
        (9, "w1.example.org", False, "does not name"),
    ],
    ids=["ended", "other CA", "host missing"],
)
def test_a_server_that_nobody_would_believe_refuses_to_start(
    tmp_path: Path, role: str, days: int, host: str, other: bool, words: str
) -> None:
    """It ends with status 2 and a sentence that names the file and what is wrong; it registers nowhere."""
    authority = Authority()
    signer = Authority("others") if other else authority
    certificate = signer.issue(host or ("localhost" if role == "master" else "127.0.0.1"), days=days)
    section = master_section(tmp_path) if role == "master" else worker_section(tmp_path)
    file = file_of(tmp_path, certificate, authority, section)
    command = [sys.executable, "-P", "-m", f"holdfast.{role}", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert f"{tmp_path}/server.crt" in done.stderr
    assert done.stdout == ""


def test_a_certificate_that_ends_soon_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With less than 30 days left there is a line in the log; with more there is none, and neither is refused."""
    authority = Authority()
    for days in (9, 90):
        certificate = authority.issue("127.0.0.1", days=days)
        found = parsed(file_of(tmp_path, certificate, authority, worker_section(tmp_path)))
        security = ServerSecurity.of(found, "w1", ["127.0.0.1"])
        assert security is not None
        security.warn_of_end(time.time())
    (soon,) = logged(caplog, LogEvent.CERTIFICATE_EXPIRING)
    assert 8 < float(str(soon["days"])) <= 9


def test_who_listens_nowhere_needs_no_certificate_that_is_believed(tmp_path: Path) -> None:
    """The doctor shows a server's own token to a cluster even where that server's certificate has ended."""
    authority = Authority()
    certificate = authority.issue("127.0.0.1", days=-1)
    found = parsed(file_of(tmp_path, certificate, authority, worker_section(tmp_path)))
    assert ServerSecurity.of(found, "doctor") is not None
    with pytest.raises(ConfigError, match="expired"):
        ServerSecurity.of(found, "w1", ["127.0.0.1"])
    assert ServerSecurity.of(replace(found, security=replace(found.security, enabled=False)), "w1", ["x"]) is None


def test_a_local_cluster_starts_again_after_a_kill_and_after_a_year(tmp_path: Path) -> None:
    """Empty files of a first start that was killed, and a certificate that has all but ended, are made anew; the
    cluster starts, and its own credentials are good."""
    folder = tmp_path / "security"
    folder.mkdir()
    empty = [tmp_path / "cluster", tmp_path / "secret", folder / "ca.key", folder / "admin.token"]
    for path in empty:
        path.touch(0o600)
    with local_cluster(1, 0, dir=tmp_path, secure=True) as cluster:
        assert cluster.alive_workers() == set()
    assert all(path.stat().st_size for path in empty)
    kept = [path.read_bytes() for path in empty[:3]]
    issue(folder, "server", ["127.0.0.1"], 1, anew=True)
    soon = (folder / "server.pem").read_bytes()
    with local_cluster(1, 0, dir=tmp_path, secure=True) as cluster:
        assert cluster.alive_workers() == set()
    assert (folder / "server.pem").read_bytes() != soon
    assert [path.read_bytes() for path in empty[:3]] == kept
