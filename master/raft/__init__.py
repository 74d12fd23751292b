"""The masters' replicated log: pysyncobj's Raft, hardened. `node.RaftNode` is the door; docs/raft.md explains it."""

from holdfast.master.raft.codec import MAX_COMMAND_BYTES
from holdfast.master.raft.errors import (
    TAKEN,
    CommandTooLarge,
    NodeStopped,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    RaftError,
    SettingsRefused,
    StorageDamaged,
    StorageFailed,
)
from holdfast.master.raft.member import Applied, RaftStateMachine
from holdfast.master.raft.node import EXIT_DISK, PeerStatus, RaftNode, RaftSettings, RaftStatus
from holdfast.master.raft.transport import STRANGERS_MAX, TlsContexts

__all__ = [
    "EXIT_DISK",
    "MAX_COMMAND_BYTES",
    "STRANGERS_MAX",
    "TAKEN",
    "Applied",
    "CommandTooLarge",
    "NodeStopped",
    "NotLeader",
    "OutcomeUnknown",
    "Overloaded",
    "PeerStatus",
    "RaftError",
    "RaftNode",
    "RaftSettings",
    "RaftStateMachine",
    "RaftStatus",
    "SettingsRefused",
    "StorageDamaged",
    "StorageFailed",
    "TlsContexts",
]
