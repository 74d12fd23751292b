"""All attacks by name, but for epochs.py: what it takes is bounded by number, and the allocator keeps part of that."""

from __future__ import annotations

from tests.attack import (
    bodies,
    commits,
    hoarding,
    quota,
    raft_port,
    replicas,
    strangers,
    streams,
    unregistered,
    worker_http,
)
from tests.attack.target import Attack

ATTACKS: dict[str, Attack] = {
    "silent-connections": strangers.silent_connections,
    "handshakes": strangers.handshakes,
    "garbage": strangers.garbage,
    "many-applications": hoarding.applications,
    "many-shuffles": hoarding.shuffles,
    "one-user-many-applications": hoarding.by_many_applications,
    "fill-the-quota": quota.fill,
    "streams-repeated": streams.repeated,
    "streams-plans": streams.plans,
    "worker-http-flood": worker_http.flood,
    "worker-http-refused": worker_http.refused,
    "unregistered-files": unregistered.files,
    "unregistered-pushes": unregistered.pushes,
    "replicas-anywhere": replicas.anywhere,
    "refused-bodies": bodies.refused_over_grpc,
    "cut-bodies": bodies.cut_over_http,
    "commits-of-another-shape": commits.of_another_shape,
    "raft-silent": raft_port.silent,
    "raft-half-way": raft_port.half_way,
}
