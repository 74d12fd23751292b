"""The client: a library that writes shuffles to workers and reads them back.

The names below are imported when they are first used, so that a Spark task, which needs few of them, starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.cluster.local import LocalCluster, local_cluster
    from holdfast.client.read.fetch_options import FetchOptions
    from holdfast.client.read.stream_reader import Record
    from holdfast.client.reduce_shuffle import ReduceShuffle
    from holdfast.client.session import Session
    from holdfast.client.shuffle import MapShuffle
    from holdfast.client.write.status import MapStatus, PushStatus
    from holdfast.common.errors import (
        AbortedError,
        ApplicationGoneError,
        ConfigError,
        ConflictError,
        CorruptError,
        DataError,
        DataLostError,
        GiveUpError,
        HoldfastError,
        NoRoomError,
        OutcomeUnknownError,
        ProtocolError,
        RetryError,
    )
    from holdfast.common.formats.batch import Codec
    from holdfast.common.formats.messages import Ack
    from holdfast.common.security.credentials import Credentials

__all__ = [
    "AbortedError",
    "Ack",
    "ApplicationGoneError",
    "Codec",
    "ConfigError",
    "ConflictError",
    "CorruptError",
    "Credentials",
    "DataError",
    "DataLostError",
    "FetchOptions",
    "GiveUpError",
    "HoldfastError",
    "LocalCluster",
    "MapShuffle",
    "MapStatus",
    "NoRoomError",
    "OutcomeUnknownError",
    "ProtocolError",
    "PushStatus",
    "QuotaExceededError",
    "Record",
    "ReduceShuffle",
    "RetryError",
    "Session",
    "local_cluster",
]

_HOMES = {
    "AbortedError": "holdfast.common.errors",
    "Ack": "holdfast.common.formats.messages",
    "ApplicationGoneError": "holdfast.common.errors",
    "Codec": "holdfast.common.formats.batch",
    "ConfigError": "holdfast.common.errors",
    "ConflictError": "holdfast.common.errors",
    "CorruptError": "holdfast.common.errors",
    "Credentials": "holdfast.common.security.credentials",
    "DataError": "holdfast.common.errors",
    "DataLostError": "holdfast.common.errors",
    "FetchOptions": "holdfast.client.read.fetch_options",
    "GiveUpError": "holdfast.common.errors",
    "HoldfastError": "holdfast.common.errors",
    "LocalCluster": "holdfast.client.cluster.local",
    "MapShuffle": "holdfast.client.shuffle",
    "MapStatus": "holdfast.client.write.status",
    "NoRoomError": "holdfast.common.errors",
    "OutcomeUnknownError": "holdfast.common.errors",
    "ProtocolError": "holdfast.common.errors",
    "PushStatus": "holdfast.client.write.status",
    "Record": "holdfast.client.read.stream_reader",
    "QuotaExceededError": "holdfast.common.errors",
    "ReduceShuffle": "holdfast.client.reduce_shuffle",
    "RetryError": "holdfast.common.errors",
    "Session": "holdfast.client.session",
    "local_cluster": "holdfast.client.cluster.local",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
