"""Descriptors that readers hold open."""

import os
from pathlib import Path

from holdfast.worker.storage.read.handles import OpenFiles
from tests.support.storage_env import env_of


def test_files_of_a_deleted_folder_are_closed_by_whoever_takes_them(tmp_path: Path) -> None:
    """To close the last descriptor of a deleted file frees its blocks, which may take long: that is left to the caller,
    who does it in a thread. Files of other folders stay open."""
    for name in ("1-0", "1-01"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p-0").write_bytes(b"data")
    files = OpenFiles(env_of(), 8)
    mine, other = (files.open(str(tmp_path / name / "p-0")).fd for name in ("1-0", "1-01"))
    taken = files.forget(str(tmp_path / "1-0"))
    assert [handle.fd for handle in taken] == [mine]
    assert os.pread(mine, 4, 0) == os.pread(other, 4, 0) == b"data"
    taken.clear()
    assert not Path(f"/proc/self/fd/{mine}").exists()
    assert len(files) == 1
