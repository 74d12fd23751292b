"""The public API for Java, org.apache.spark.shuffle.holdfast.client, as a program without Spark's session uses it."""

from pathlib import Path

from holdfast.client.cluster.local import local_cluster
from holdfast.client.connection.direct import worker_status
from tests.jvm.test_fetch import flip
from tests.support.jvm import Programs

#: What three attempts and another shuffle write of 5 MiB blocks that do not compress, less what an abandoned one may.
PUSHED_BYTES_MIN = 6 * (5 << 20)


def test_blocks_come_back_as_they_were_and_damage_is_named(programs: Programs, tmp_path: Path) -> None:
    """Blocks of two partitions, on the heap and direct, short and long, by two attempts: those of the one that was
    committed are read by another client, by the engine's codec and by Holdfast's; wrong calls are refused with their
    status. After a byte was flipped in the only copy, a reader is told the partition, the chunk and the worker."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        (worker,) = cluster.workers
        program = programs.start("client.ClientMain", cluster.endpoints)
        program.hear("READY", 180)
        assert worker_status(worker.http, 5.0)["counters"]["push_bytes"] > PUSHED_BYTES_MIN
        assert flip(cluster.directory / worker.name)
        program.say("go")
        told = program.hear("TOLD", 120)
        for word in ("partition ", "chunk ", "checksum mismatch", "worker "):
            assert word in told
        assert program.wait() == 0, program.output()
