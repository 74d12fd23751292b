"""All attacks by name."""

from __future__ import annotations

from tests.attack import hoarding, strangers
from tests.attack.target import Attack

ATTACKS: dict[str, Attack] = {
    "silent-connections": strangers.silent_connections,
    "handshakes": strangers.handshakes,
    "many-applications": hoarding.applications,
    "many-shuffles": hoarding.shuffles,
}
