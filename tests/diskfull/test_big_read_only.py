"""The workload `big` over three tiers whose disk turns read-only in the middle: the result is right all the same."""

import shutil
import tempfile
from pathlib import Path

import pytest

from holdfast.client.cluster.local import local_cluster
from holdfast.client.connection.direct import worker_status
from tests.diskfull.test_file_systems import _skip_reason, ext4
from tests.spark.test_plugin import job
from tests.support.spark_conf import conf
from tests.support.tiers import Tiers
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(_skip_reason()), reason=_skip_reason()),
]
MODULE = "plugin_memory_job"


def test_big_goes_on_when_the_disk_turns_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ext4 that the kernel makes read-only while files lie and move on it: nothing new goes there, what it
    has sealed is read from it, what is lost is run again by Spark, and the answer is that of Spark's own shuffle."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", "1")
    with job("big", {}, tmp_path, module=MODULE) as own:
        expected = own.step()
    memory = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir="/dev/shm"))
    (tmp_path / "dfs").mkdir()
    with ext4(tmp_path / "disk", tmp_path / "image", 700) as name:
        tiers = Tiers(memory / "m", tmp_path / "disk" / "d", 256, 512, str(tmp_path / "dfs"))
        with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=tiers.settings) as cluster:

            def disk() -> dict[str, object]:
                return dict(worker_status(cluster.workers[0].http, 5.0)["directories"][1])

            with job("big", conf(cluster.endpoints, fallback="never"), tmp_path, module=MODULE) as running:
                wait_until(lambda: int(str(disk()["used_bytes"])) > 64 << 20, "data on the disk", 300)
                Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1")
                assert running.step() == expected
            assert not disk()["healthy"]
            assert "ead-only" in str(disk()["problem"])
    shutil.rmtree(memory)
