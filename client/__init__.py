"""The client: a library that writes shuffles to workers and reads them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.common.system.lazy import lazily

if TYPE_CHECKING:
    from holdfast.client.cluster.local import LocalCluster, local_cluster
    from holdfast.client.cluster.server import Server, StartError
    from holdfast.client.compress import PayloadError
    from holdfast.client.read.fetch_options import FetchOptions
    from holdfast.client.read.stream_reader import Record
    from holdfast.client.reduce_shuffle import ReduceShuffle
    from holdfast.client.session import Session
    from holdfast.client.shuffle import MapShuffle
    from holdfast.client.worker_info import WorkerInfo
    from holdfast.client.write.push_writer import PushWriter
    from holdfast.client.write.status import MapStatus, PushStatus
    from holdfast.client.write.writer import MapWriter
    from holdfast.common.errors import (
        AbortedError,
        ApplicationGoneError,
        ConfigError,
        ConflictError,
        CorruptError,
        DataError,
        DataLostError,
        ForbiddenError,
        GiveUpError,
        HoldfastError,
        NoRoomError,
        NotMasterError,
        OtherClusterError,
        OutcomeUnknownError,
        ProtocolError,
        QuotaExceededError,
        RetryError,
        TokenExpiredError,
        UnauthenticatedError,
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
    "ForbiddenError",
    "GiveUpError",
    "HoldfastError",
    "LocalCluster",
    "MapShuffle",
    "MapStatus",
    "MapWriter",
    "NoRoomError",
    "NotMasterError",
    "OtherClusterError",
    "OutcomeUnknownError",
    "PayloadError",
    "ProtocolError",
    "PushStatus",
    "PushWriter",
    "QuotaExceededError",
    "Record",
    "ReduceShuffle",
    "RetryError",
    "Server",
    "Session",
    "StartError",
    "TokenExpiredError",
    "UnauthenticatedError",
    "WorkerInfo",
    "local_cluster",
]

#: Where they are, unless in errors.py.
_HOMES = {
    "Ack": "holdfast.common.formats.messages",
    "Codec": "holdfast.common.formats.batch",
    "Credentials": "holdfast.common.security.credentials",
    "FetchOptions": "holdfast.client.read.fetch_options",
    "LocalCluster": "holdfast.client.cluster.local",
    "MapShuffle": "holdfast.client.shuffle",
    "MapStatus": "holdfast.client.write.status",
    "MapWriter": "holdfast.client.write.writer",
    "PayloadError": "holdfast.client.compress",
    "PushStatus": "holdfast.client.write.status",
    "PushWriter": "holdfast.client.write.push_writer",
    "Record": "holdfast.client.read.stream_reader",
    "ReduceShuffle": "holdfast.client.reduce_shuffle",
    "Server": "holdfast.client.cluster.server",
    "Session": "holdfast.client.session",
    "StartError": "holdfast.client.cluster.server",
    "WorkerInfo": "holdfast.client.worker_info",
    "local_cluster": "holdfast.client.cluster.local",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, {name: _HOMES.get(name, "holdfast.common.errors") for name in __all__})
