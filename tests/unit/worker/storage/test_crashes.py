"""Kill -9 between any two steps of a seal, a first start and a forget."""

import os
from functools import partial

import pytest

from holdfast.common.errors import RerouteError
from holdfast.common.statuses import Status
from holdfast.worker.storage.offline.verify import verify_directory
from tests.support.forks import DiedError, forked
from tests.support.map_data import file_key, make_content, shuffle_key
from tests.support.storage_data import append_all, open_store, read, write
from tests.support.storage_env import CheckHere, Disk

KEY = file_key(shuffle_key())
STEPS = ("create", "write", "sync", "sync_folder", "make_folder", "rename", "remove", "commit", "truncate")


class Dying(Disk):
    """Ends the process, as kill -9 would, at step number `last` counted from `arm`; or counts steps."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.count: int | None = None

    def arm(self) -> None:
        self.count = 0

    def _step(self) -> None:
        if self.count is not None:
            if self.count == self.last:
                os._exit(9)
            self.count += 1


def _dying(name):
    real = getattr(Disk, name)

    def step(self, *arguments):
        self._step()
        value = real(self, *arguments)
        self._step()
        return value

    return step


for _name in STEPS:
    setattr(Dying, _name, _dying(_name))


def run(root, disk, arm_at):
    """Write and seal a file, then forget a shuffle; armed from the start, before the seal or before the forget."""
    if arm_at == "start":
        disk.arm()
    store = open_store(root, disk=disk, sync_threads=1)
    content, other = make_content(KEY), make_content(file_key(shuffle_key(bytes(16), 5)))
    write(store, other)
    append_all(store, content)
    if arm_at == "seal":
        disk.arm()
    store.seal(KEY, content.totals).result(30)
    (root / "answered").touch()
    if arm_at == "forget":
        disk.arm()
    if arm_at != "seal":
        store.forget([other.key.shuffle]).result(30)
    count = disk.count
    store.close()
    return count


def is_whole(store, content):
    """Whether a file is sealed and gives its rows; if not, it must be unknown or unsealed."""
    try:
        store.seal(content.key, content.totals).result(30)
    except RerouteError as error:
        if error.status in (Status.UNKNOWN_FILE, Status.NOT_SEALED):
            return False
        raise
    assert read(store, [content.key], 0, 8) == content.pieces(0, 8)
    return True


@pytest.mark.parametrize("arm_at", ["start", "seal", "forget"])
def test_killed_between_any_two_steps(tmp_path, arm_at, monkeypatch):
    """Whatever step it dies at: it opens again, a file is sealed whole or was not answered, nothing is damaged."""
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere))
    steps = forked(lambda: run(tmp_path / "whole", Dying(), arm_at))
    assert steps > 3
    content, other = make_content(KEY), make_content(file_key(shuffle_key(bytes(16), 5)))
    outcomes = set()
    for last in range(steps):
        root = tmp_path / str(last)
        with pytest.raises(DiedError) as died:
            forked(partial(run, root, Dying(last), arm_at))
        assert died.value.exitcode == 9
        answered = (root / "answered").exists()
        (root / "answered").unlink(missing_ok=True)
        store = open_store(root)
        sealed = is_whole(store, content)
        assert sealed or not answered
        outcomes.add(sealed)
        if not sealed:
            assert write(store, content).totals == content.totals
        assert is_whole(store, other) or arm_at != "seal"
        store.close()
        report = verify_directory(str(root))
        assert not report.damaged, report.findings
    assert outcomes == ({True} if arm_at == "forget" else {True, False})
