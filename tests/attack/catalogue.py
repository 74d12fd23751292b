"""All attacks by name."""

from __future__ import annotations

from tests.attack import hoarding, replicas, strangers, streams, unregistered, worker_http
from tests.attack.target import Attack

ATTACKS: dict[str, Attack] = {
    "silent-connections": strangers.silent_connections,
    "handshakes": strangers.handshakes,
    "many-applications": hoarding.applications,
    "many-shuffles": hoarding.shuffles,
    "streams-repeated": streams.repeated,
    "streams-plans": streams.plans,
    "worker-http-flood": worker_http.flood,
    "worker-http-garbage": worker_http.garbage,
    "unregistered-files": unregistered.files,
    "unregistered-pushes": unregistered.pushes,
    "replicas-anywhere": replicas.anywhere,
}
