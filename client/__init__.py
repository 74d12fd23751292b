"""The client: a library that writes shuffles to workers and reads them back.

The names below are imported when they are first used, so that a Spark task, which needs few of them, starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.cluster import LocalCluster, local_cluster
    from holdfast.client.reduce_shuffle import ReduceShuffle
    from holdfast.client.session import Session
    from holdfast.client.shuffle import MapShuffle
    from holdfast.client.status import MapStatus, PushStatus
    from holdfast.common.batch import Codec
    from holdfast.common.messages import Ack

__all__ = [
    "Ack",
    "Codec",
    "LocalCluster",
    "MapShuffle",
    "MapStatus",
    "PushStatus",
    "ReduceShuffle",
    "Session",
    "local_cluster",
]

_HOMES = {
    "Ack": "holdfast.common.messages",
    "Codec": "holdfast.common.batch",
    "LocalCluster": "holdfast.client.cluster",
    "MapShuffle": "holdfast.client.shuffle",
    "MapStatus": "holdfast.client.status",
    "PushStatus": "holdfast.client.status",
    "ReduceShuffle": "holdfast.client.reduce_shuffle",
    "Session": "holdfast.client.session",
    "local_cluster": "holdfast.client.cluster",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
