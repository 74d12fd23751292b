# ruff: noqa: N818 (the names say what happened)
"""What can go wrong in the replicated log, each with what to do about it.

Rules: one class per thing a caller does differently. `NotLeader` and `Overloaded` promise that the command was never
proposed; `OutcomeUnknown` promises nothing. Raised or set on futures by `node.RaftNode`; storage errors are raised
before a node starts.
"""

from __future__ import annotations

WAY_OUT = (
    "If the other masters are well, move this master's whole directory ([master] directory) aside and start it with "
    "an empty one: it then catches up from them. Never do that on two masters at once. If no other is left, restore a "
    "backup."
)


class RaftError(Exception):
    """Base of every error of this package."""


class NotLeader(RaftError):
    """This node does not lead; the command was definitely not proposed, or the read not run.

    `leader` is the node id of the known leader, or None.
    """

    def __init__(self, leader: str | None) -> None:
        where = f"ask {leader}" if leader else "no leader is known, ask again shortly"
        super().__init__(f"this master does not lead; {where}")
        self.leader = leader


class OutcomeUnknown(RaftError):
    """The command was proposed and leadership was lost before its fate was known: retry with the same call number."""


class Overloaded(RaftError):
    """The queue of commands waiting to be proposed is full; the command was definitely not proposed. Wait and retry."""


class CommandTooLarge(RaftError):
    """The command exceeds MAX_COMMAND_BYTES; send it as numbered parts."""


class NodeStopped(RaftError):
    """The node was stopped before the command was proposed or the read was run."""


#: What to do where an address cannot be listened at.
TAKEN = "stop the process that listens there (a shutdown takes some seconds), or set another port"


class SettingsRefused(RaftError):
    """The settings contradict themselves or the directory; the message says which and how to mend it."""


class StorageFailed(RaftError):
    """The disk of the journal or of the snapshots takes no write; the message says which and why. What was acknowledged
    is on it, and the next start continues from there once it can be written again."""


class StorageDamaged(RaftError):
    """A journal record or a snapshot fails its checks; the node refuses to start on it."""


class WireError(RaftError):
    """A message that this build cannot read: wrong version, length or kind. The connection it came on is closed."""


class PeerRefused(RaftError):
    """A handshake that failed: wrong secret, cluster, node or protocol version."""
