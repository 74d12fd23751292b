"""A worker as the masters list it, for users. Called by Session.workers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.ids import Incarnation, WorkerId
from holdfast.common.proto import holdfast_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker, as the masters see it. `state`: alive, draining, lost or gone. `place`: "/region/rack". `last_seen_ms`:
    since its last heartbeat. `files`: data files that it holds. Also `worker` (its id), `name`, `incarnation`, `host`,
    `tags`, `data_address`, `http_address`, `version`."""

    worker: WorkerId
    name: str
    incarnation: Incarnation
    host: str
    place: str
    tags: tuple[str, ...]
    state: str
    data_address: str
    http_address: str
    last_seen_ms: int
    files: int
    version: str


def worker_info(reply: pb.WorkerInfo) -> WorkerInfo:
    """What a reply of the masters says of a worker."""
    return WorkerInfo(
        worker=WorkerId(reply.worker),
        name=reply.name,
        incarnation=Incarnation(reply.incarnation),
        host=reply.host,
        place=reply.place,
        tags=tuple(reply.tags),
        state=reply.state,
        data_address=reply.data_address,
        http_address=reply.http_address,
        last_seen_ms=reply.last_seen_ms,
        files=reply.files,
        version=reply.version,
    )
