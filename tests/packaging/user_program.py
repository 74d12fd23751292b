"""A program of a user, for mypy alone: tests/packaging/test_types.py checks it against the wheel. It is never run."""

from collections.abc import Iterator
from typing import assert_type

import holdfast
from holdfast.client import (
    Ack,
    DataLostError,
    FetchOptions,
    HoldfastError,
    LocalCluster,
    MapShuffle,
    MapStatus,
    PushStatus,
    QuotaExceededError,
    Record,
    ReduceShuffle,
    Server,
    WorkerInfo,
)

assert_type(holdfast.__version__, str)


def without_spark() -> None:
    """Sessions, writers, readers."""
    with holdfast.local_cluster(masters=1, workers=2, settings={"lease": {"worker": "3s"}}) as cluster:
        assert_type(cluster, LocalCluster)
        assert_type(cluster.leader(), Server)
        with holdfast.connect(cluster.endpoints, fetch=FetchOptions(order="health")) as session:
            assert_type(session, holdfast.Session)
            assert_type(session.workers(), list[WorkerInfo])
            pushed = session.register_reduce_shuffle(8, maps=1, ack="synced")
            assert_type(pushed, ReduceShuffle)
            with pushed.writer(0) as writer:
                writer.write(3, b"payload")
                assert_type(writer.close(), PushStatus)
            assert_type(pushed.reader([3]), Iterator[Record])
            files = session.register_map_shuffle(8, ack=Ack.SYNCED)
            assert_type(files, MapShuffle)
            with files.writer(0, 1, codec="zstd:3") as regions:
                assert_type(regions.close([(0, b"x")]), MapStatus)
            session.register_map_shuffle("8")  # type: ignore[arg-type]
            session.register_map_shuffle(8, ack="disk")  # type: ignore[arg-type]
    holdfast.no_such_name()  # type: ignore[attr-defined]


def told() -> str:
    """Errors."""
    try:
        holdfast.connect(["m1:7070", "m2:7070"], app="nightly", attach=True).close()
    except (QuotaExceededError, DataLostError) as error:
        return assert_type(error.code, str)
    except HoldfastError as error:
        return error.docs
    return ""
