"""The leader's sending: entries in bounded batches, snapshots in parts, heartbeats, all under each peer's window.

Rules: a peer whose next entry is still in the log gets entries; one that is further behind gets the current snapshot
and then what follows it; a heartbeat is sent whenever it is due and nothing else was, window or not, because its answer
frees the window. Called by `member`.
"""

from __future__ import annotations

from typing import Any

from holdfast.master.raft.errors import RaftError
from holdfast.master.raft.journal import Journal
from holdfast.master.raft.library import Hardened
from holdfast.master.raft.message_filter import MessageFilter
from holdfast.master.raft.snapshot import PART_BYTES, Snapshots, Transfer


class Replicator:
    """Sends what the peers of one leader lack."""

    def __init__(
        self,
        raft: Hardened,
        nodes: dict[str, Any],
        gate: MessageFilter,
        journal: Journal,
        snapshots: Snapshots,
        batch_entries: int,
    ) -> None:
        self._raft, self._nodes, self._gate, self._journal, self._snapshots = raft, nodes, gate, journal, snapshots
        self._batch_entries = batch_entries
        self._transfers: dict[str, Transfer] = {}

    def replicate(self, heartbeat: bool) -> None:
        """Send each connected peer what its window has room for, and a heartbeat if asked and nothing else was sent."""
        for peer, node in self._nodes.items():
            if node not in self._raft.connected:
                continue
            next_index = min(self._raft.next_index[node], self._journal.last_index + 1)
            if next_index <= self._journal.first_index:
                sent = self._send_parts(peer, node)
            else:
                sent = self._send_entries(peer, node, next_index)
            if heartbeat and not sent:
                self._send_heartbeat(peer, node)

    def forget(self, peer: str) -> None:
        """End a transfer: the connection or the leadership was lost."""
        transfer = self._transfers.pop(peer, None)
        if transfer is not None:
            transfer.close()

    def forget_all(self) -> None:
        """End all transfers."""
        for peer in list(self._transfers):
            self.forget(peer)

    def _send_entries(self, peer: str, node: Any, next_index: int) -> bool:
        sent = False
        self.forget(peer)
        while next_index <= self._journal.last_index and self._gate.windows[peer].has_room():
            entries = self._journal.slice(next_index, self._batch_entries)
            self._gate.send_append(peer, next_index - 1, self._term_at(next_index - 1), entries)
            next_index = entries[-1][1] + 1
            sent = True
        self._raft.next_index[node] = next_index
        return sent

    def _term_at(self, index: int) -> int:
        term = self._journal.term_at(index)
        if term is None:
            raise RaftError(f"entry {index} is not in the log")
        return term

    def _send_heartbeat(self, peer: str, node: Any) -> None:
        next_index = min(self._raft.next_index[node], self._journal.last_index + 1)
        if next_index > self._journal.first_index:
            self._gate.send_append(peer, next_index - 1, self._term_at(next_index - 1), ())
        elif (transfer := self._transfers.get(peer)) is not None:
            last = transfer.id
            self._gate.send_part(peer, last.index, last.term, transfer.total, transfer.offset, b"")

    def _send_parts(self, peer: str, node: Any) -> bool:
        """Parts of the snapshot; behind the last one the peer is asked for what follows it."""
        transfer = self._transfers.get(peer) or self._begin(peer)
        sent = False
        while self._gate.windows[peer].has_room():
            data = transfer.read(transfer.offset, PART_BYTES)
            last = transfer.id
            self._gate.send_part(peer, last.index, last.term, transfer.total, transfer.offset, data)
            transfer.offset += len(data)
            sent = True
            if transfer.offset >= transfer.total:
                self._raft.next_index[node] = last.index + 1
                self.forget(peer)
                break
        return sent

    def _begin(self, peer: str) -> Transfer:
        transfer = self._snapshots.transfer()
        if transfer is None:
            raise RaftError("the log was compacted and no snapshot exists to send")
        self._transfers[peer] = transfer
        return transfer
