"""Digests of the configuration that all masters of a cluster must share, to compare it without showing it.

Rules: a digest covers a whole section, so that a difference is found whatever the key; nothing secret is put
into one. The secret itself has a digest of 16 bits: two that differ are detected 65,535 times of 65,536, and a reader
gets no more than these 16 bits of the secret, however often it asks. Pure. Masters send these in Admin/Status;
`holdfast doctor` compares them.
"""

from __future__ import annotations

import hashlib
import hmac

from holdfast.common.config.config import Config
from holdfast.common.config.settings import render_value

#: Sections that the leader uses, whichever master it is.
SECTIONS = ("raft", "lease", "dfs", "quota", "placement", "security")
#: Keys of these that may differ from machine to machine.
_OWN = frozenset(
    {
        *(("dfs", "access_key"), ("dfs", "secret_key_file"), ("placement", "resolver_path")),
        *(("security", "certificate"), ("security", "key_file"), ("security", "ca")),
    }
)
#: Keys of other sections that masters read.
_KEYS = tuple(("worker", key) for key in ("return_grace", "copy_grace", "restore_after", "restore_rate"))
_DIGEST_BYTES = 4
_SECRET_HEX = 4


def settings_digests(config: Config) -> dict[str, str]:
    """Digests by name: each section, "peers", and keys of other sections as "worker.return_grace"."""
    found = {name: _digest(_section(config, name)) for name in SECTIONS}
    peers = sorted((peer.name, str(peer.raft), str(peer.http)) for peer in config.master.peers)
    found["peers"] = _digest(repr(peers))
    return found | {f"{name}.{key}": _digest(render_value(getattr(getattr(config, name), key))) for name, key in _KEYS}


def secret_digest(secret: bytes, cluster_id: str) -> str:
    """16 bits of the secret's digest, as four hex digits."""
    return hmac.digest(secret, b"holdfast secret of " + cluster_id.encode(), "sha256").hex()[:_SECRET_HEX]


def _section(config: Config, name: str) -> str:
    section = getattr(config, name)
    keys = [key for key in type(section).__dataclass_fields__ if (name, key) not in _OWN]
    return "\n".join(f"{key} = {render_value(getattr(section, key))}" for key in keys)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
