"""Backups of a journal: what a kill left is removed by the next one; what cannot be written is told with a remedy."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.common.errors import ConfigError
from holdfast.master.backup import _scratch, back_up
from holdfast.master.raft.journal import Change, Meta
from holdfast.master.raft.journal_store import LmdbStore


def journal(tmp_path: Path) -> Path:
    """A master's directory with an empty journal."""
    directory = tmp_path / "m1"
    directory.mkdir()
    store = LmdbStore(directory / "journal", "prod", "m1")
    store.commit(Change(Meta(1, None, 0, 1, 0), []))
    store.close()
    return directory


def test_what_a_kill_left_goes_with_the_next_backup(tmp_path: Path) -> None:
    """Directories of backups that were killed are removed; that of one that runs, and what others keep, stay."""
    directory, place = journal(tmp_path), tmp_path / "backups"
    left, other = place / ".holdfast-backup-killed", place / "kept"
    for each in (left, other):
        (each / "journal").mkdir(parents=True)
        (each / "journal" / "data.mdb").write_bytes(b"half")
    with _scratch(place, ".holdfast-backup-") as running:
        assert back_up(directory, "prod", "m1", place / "first")["term"] == 1
        assert not left.exists()
        assert running.is_dir()
    assert sorted(path.name for path in place.iterdir()) == ["first", "kept"]


def test_a_backup_needs_a_directory(tmp_path: Path) -> None:
    """Without it the sentence says to make it."""
    with pytest.raises(ConfigError, match=r"there is no directory .*none: make it"):
        back_up(journal(tmp_path), "prod", "m1", tmp_path / "none" / "file")


def test_a_full_disk_is_reported_with_what_to_do(tmp_path: Path) -> None:
    """Where nothing can be written the status is 1, the sentence names the directory, and nothing is left there."""
    journal(tmp_path)
    place = tmp_path / "backups"
    place.mkdir()
    config = tmp_path / "m1.toml"
    peer = '{ name = "m1", raft = "127.0.0.1:7072", http = "127.0.0.1:7070" }'
    config.write_text(f'[cluster]\nid = "prod"\n[master]\nname = "m1"\ndirectory = "{tmp_path}/m1"\npeers = [{peer}]\n')
    command = [sys.executable, "-P", "-m", "holdfast.master.backup", "backup", str(place / "file")]
    done = subprocess.run(
        [*command, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert done.returncode == 1, done
    assert f"check that {place} has room" in done.stderr
    assert list(place.iterdir()) == []
