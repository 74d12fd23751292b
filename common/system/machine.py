"""Which machine this is, so that masters can tell two hosts from two names of one.

Rules: the id in /etc/machine-id is no secret and is not to be shown to others either, as machine-id(5) says; so what
leaves this machine is that id hashed with a key of Holdfast's own, as `systemd-id128 machine-id --app-specific=` does.
Called by the worker when it starts, and by the doctor.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from pathlib import Path

#: Where systemd keeps it, and most others that have one.
MACHINE_ID = Path("/etc/machine-id")
#: Drawn once for Holdfast.
_APPLICATION = uuid.UUID("b7c52a1e-6d0f-4c2b-9a55-3f8e4d7106c9")
_DIGITS = 32


def this_machine(path: Path = MACHINE_ID) -> str:
    """32 hexadecimal digits that stay the same over boots; empty where the machine has no id, as in many containers."""
    try:
        text = path.read_text("ascii").strip()
        own = bytes.fromhex(text) if len(text) == _DIGITS else b""
    except (OSError, ValueError):  # none, or "uninitialized" before the first boot
        return ""
    if not any(own):
        return ""
    digest = hmac.digest(own, _APPLICATION.bytes, hashlib.sha256)[:16]
    return _as_random_uuid(digest).hex()


def _as_random_uuid(digest: bytes) -> bytes:
    """The same with the bits by which a UUID says that it was drawn by chance, as systemd sets them."""
    return uuid.UUID(bytes=digest, version=4).bytes
