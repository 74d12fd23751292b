"""Which directories take data, and what masters say where none does."""

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.core.state.records import KIND_MAP, KIND_REDUCE
from holdfast.master.fleet.capacity import no_room, takes


def directory(path: str = "/data", **changed: object) -> pb.Directory:
    fields: dict = {"tier": "SSD", "capacity_bytes": 512 << 20, "free_bytes": 1, "healthy": True}
    return pb.Directory(path=path, **{**fields, **changed})


def told(directories: list[pb.Directory], dfs: pb.Dfs | None = None) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(directories=directories, dfs=dfs)


@pytest.mark.parametrize(
    ("changed", "kind", "ack", "does"),
    [
        ({}, KIND_REDUCE, Ack.WRITTEN, True),
        ({"healthy": False}, KIND_REDUCE, Ack.WRITTEN, False),
        ({"free_bytes": 0}, KIND_REDUCE, Ack.WRITTEN, False),
        ({"full": "full"}, KIND_REDUCE, Ack.WRITTEN, False),
        ({"full": "full"}, KIND_MAP, Ack.WRITTEN, True),
        ({"free_bytes": 0}, KIND_MAP, Ack.WRITTEN, False),
        ({"tier": "MEMORY"}, KIND_REDUCE, Ack.WRITTEN, True),
        ({"tier": "MEMORY"}, KIND_REDUCE, Ack.SYNCED, False),
    ],
)
def test_who_takes_data(changed: dict, kind: int, ack: Ack, does: bool) -> None:
    """A directory that is well and has room; for REDUCE partitions as they may grow, for what is synced no memory."""
    assert takes(directory(**changed), kind, ack) is does


def test_the_limits_of_some_workers_are_named() -> None:
    """Worker, directory, tier and limit; of many workers and directories only some, and how many more there are."""
    full = directory(full="512.0 MiB used of 512.0 MiB")
    assert no_room([("w1", told([full]))]) == "no worker has room: worker w1: /data (SSD) 512.0 MiB used of 512.0 MiB"
    broken = directory("/b", problem="writing failed: EIO", healthy=False)
    none_left = directory("/c", used_bytes=512 << 20, free_bytes=0)
    assert no_room([("w1", told([broken, none_left])), ("w2", told([directory("/m", tier="MEMORY")]))]) == (
        "no worker has room: worker w1: /b (SSD) writing failed: EIO, /c (SSD) 512.0 MiB used of 512.0 MiB; worker w2: "
        "/m (MEMORY) 0 B used of 512.0 MiB, and memory keeps nothing that is to be synced"
    )
    many = no_room([(f"w{number}", told([full] * 9)) for number in range(10)])
    assert many.count("worker w") == 4
    assert many.endswith("and 6 more workers")
    assert many.count("and 5 more directories") == 4


def test_the_text_is_bounded() -> None:
    """However many workers there are and however long their paths."""
    long = directory("/" + "x" * 4_000, full="y" * 4_000)
    dfs = pb.Dfs(url="s3://" + "u" * 4_000, problem="p" * 4_000, problem_ms=1)
    assert len(no_room([("w" * 255, told([long] * 64, dfs))] * 10_000)) < 9_000


def test_a_dfs_that_cannot_be_used_is_named() -> None:
    """Where files cannot leave for the DFS that is why there is no room: who met it first, since when, and what."""
    full = directory(full="512.0 MiB used of 512.0 MiB")
    well = pb.Dfs(url="s3://b/p", state="well")
    failing = pb.Dfs(url="s3://b/p", state="failing", problem="no answer", problem_ms=41_500)
    later = pb.Dfs(url="s3://b/p", state="failing", problem="refused", problem_ms=2_000)
    assert "s3://" not in no_room([("w1", told([full], well)), ("w2", told([full]))])
    assert no_room([("w1", told([full], failing))]).endswith(
        "MiB, and worker w1 cannot use the DFS s3://b/p since 41 s: no answer"
    )
    both = no_room(
        [
            ("w1", told([full], later)),
            ("w2", told([full], failing)),
            ("w3", told([full], well)),
        ]
    )
    assert both.endswith(", and worker w2 and 1 other cannot use the DFS s3://b/p since 41 s: no answer")
