"""Between the library and the network: what may leave, what may come in, and stamped with what.

Rules:
* nothing leaves before the journal is synced: messages wait in the outbox, `flush` syncs once and then sends all;
* every append carries (term, seq), seq growing with each send of this process; an answer repeats both, and the
  receiver drops answers of another term (row 2);
* a follower drops an append not newer than the last it handled, strips entries that it has already, and answers
  itself where nothing is new, so the log is only ever cut at a real conflict (row 3);
* a snapshot part or a heartbeat that proves nothing about the log carries no commit index to the library;
* answers feed the leader's windows and its proof of leadership (`confirmed_seq`).

Called by `member`; towards the library it plays the transport object, hence the camel case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.master.raft import codec
from holdfast.master.raft.codec import (
    Append,
    AppendAnswer,
    Message,
    PreVote,
    PreVoteGranted,
    RequestVote,
    SnapshotPart,
    TimeoutNow,
    Vote,
)
from holdfast.master.raft.errors import RaftError
from holdfast.master.raft.journal import Journal
from holdfast.master.raft.library import LEADER, Hardened
from holdfast.master.raft.prevote import ASK_AGAIN_SHARE, PreVotes

WINDOW_BYTES = 4 << 20


class Network(Protocol):
    """Carries payloads to connected peers, in order while a connection lives; may lose them with it."""

    def send(self, peer: str, payload: bytes) -> None:
        """Queue a payload; dropped if the peer is not connected."""


class AppendWindow:
    """Appends sent to one peer and not yet answered."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._open: list[tuple[int, int]] = []  # (seq, bytes), seq growing
        self._bytes = 0
        self.acked_seq = 0  # highest seq answered in the current term
        self.reset_seq = 0  # answers to appends up to here may not move next_index back again

    def has_room(self) -> bool:
        """Whether another message may be sent before an answer comes."""
        return self._bytes < WINDOW_BYTES and len(self._open) < self._messages

    def sent(self, seq: int, size: int) -> None:
        """Note a message."""
        self._open.append((seq, size))
        self._bytes += size

    def answered(self, seq: int) -> None:
        """An answer settles its message and all before it."""
        self.acked_seq = max(self.acked_seq, seq)
        keep = [pair for pair in self._open if pair[0] > seq]
        self._bytes = sum(size for _, size in keep)
        self._open = keep

    def clear(self) -> None:
        """The connection is closed, and what was on it is lost."""
        self._open = []
        self._bytes = 0


class MessageFilter:
    """The transport object of one member."""

    ready = True

    def __init__(
        self, network: Network, journal: Journal, peers: list[str], window_messages: int, pre_votes: PreVotes
    ) -> None:
        self._network = network
        self._pre_votes = pre_votes
        self._journal = journal
        self._outbox: list[tuple[str, Message]] = []
        self._seq = 0
        self._handled: dict[str, tuple[int, int]] = {}
        self._answering = (0, 0)
        self._voters: set[tuple[int, str]] = set()
        self.windows = {peer: AppendWindow(window_messages) for peer in peers}
        self._deliver: Callable[[Any, dict[str, Any]], None] = lambda _node, _message: None
        self._on_connected: Callable[[Any], None] = lambda _node: None
        self._on_disconnected: Callable[[Any], None] = lambda _node: None
        self._raft: Hardened
        self._nodes: dict[str, Any] = {}
        self._on_part: Callable[[SnapshotPart], bool]
        #: a snapshot is being installed: nothing that would change the log is taken
        self.installing = False
        #: the log here has all that was ever acknowledged before; from then on, unless a snapshot has to come
        self.caught_up = False

    def bind(self, raft: Hardened, nodes: dict[str, Any], on_part: Callable[[SnapshotPart], bool]) -> None:
        """Complete the filter. `on_part` keeps a part of a snapshot."""
        self._raft, self._nodes, self._on_part = raft, nodes, on_part

    # the transport object of the library

    def setOnMessageReceivedCallback(self, callback: Callable[[Any, dict[str, Any]], None]) -> None:  # noqa: N802
        """Where messages go."""
        self._deliver = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        """Told of connections."""
        self._on_connected = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Any], None]) -> None:  # noqa: N802
        """Told of their ends."""
        self._on_disconnected = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: object) -> None:  # noqa: N802
        """There are no read-only nodes."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: object) -> None:  # noqa: N802
        """There are no read-only nodes."""

    def setOnUtilityMessageCallback(self, message: str, callback: object) -> None:  # noqa: N802
        """There are no utility messages: members, versions and leaders are not changed from the wire."""

    def tryGetReady(self) -> None:  # noqa: N802
        """Always ready."""

    def waitReady(self) -> None:  # noqa: N802
        """Always ready."""

    def addNode(self, node: Any) -> None:  # noqa: N802
        """Refused: membership is fixed by the settings."""
        raise RaftError(f"the library tried to add member {node.id}")

    def dropNode(self, node: Any) -> None:  # noqa: N802
        """Refused: membership is fixed by the settings."""
        raise RaftError(f"the library tried to drop member {node.id}")

    def destroy(self) -> None:
        """The node closes its network itself."""

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        """Put a message of the library into the outbox. Appends never come this way: see `send_append`."""
        kind = message["type"]
        out: Message
        if kind == "next_node_idx":
            term, seq = self._answering
            out = AppendAnswer(term, seq, message["next_node_idx"], bool(message["reset"]), bool(message["success"]))
        elif kind == "request_vote":
            out = RequestVote(message["term"], message["last_log_index"], message["last_log_term"])
        elif kind == "response_vote":
            out = Vote(message["term"])
            self._pre_votes.end()  # an election now would depose the candidate that got the vote
        elif kind == "timeout_now":
            out = TimeoutNow(message["term"])
        else:
            raise RaftError(f"the library tried to send {kind!r}")
        self._outbox.append((node.id, out))
        return True

    def ask_pre_votes(self) -> None:
        """Ask every peer whether it would vote for this member."""
        index = self._journal.last_index
        message = PreVote(self._pre_votes.begin(), index, self._last_term())
        self._outbox += [(peer, message) for peer in self.windows]

    def _last_term(self) -> int:
        return self._journal.term_at(self._journal.last_index) or 0

    # the leader's way out

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest append; one sent from now on has a higher one."""
        return self._seq

    def send_append(self, peer: str, prev_index: int, prev_term: int, entries: tuple[codec.Entry, ...]) -> None:
        """Send entries (or none: a heartbeat) behind prev."""
        self._seq += 1
        raft = self._raft
        self._outbox.append((peer, Append(raft.term, self._seq, raft.commit_index, prev_index, prev_term, entries)))
        self.windows[peer].sent(self._seq, sum(len(entry[0]) for entry in entries))

    def send_part(self, peer: str, index: int, term: int, total: int, offset: int, data: bytes) -> None:
        """Send a part of a snapshot; an empty one is a heartbeat."""
        self._seq += 1
        self._outbox.append((peer, SnapshotPart(self._raft.term, self._seq, index, term, total, offset, data)))
        self.windows[peer].sent(self._seq, len(data))

    def confirmed_seq(self) -> int:
        """The highest seq that a majority (this node included) has answered in the current term."""
        need = (len(self.windows) + 1) // 2
        if need == 0:
            return self._seq
        return sorted((window.acked_seq for window in self.windows.values()), reverse=True)[need - 1]

    def forget_progress(self) -> None:
        """A new leadership begins, or one ended: earlier answers prove nothing."""
        for window in self.windows.values():
            window.clear()
            window.acked_seq = 0
            window.reset_seq = self._seq

    def flush(self) -> None:
        """Row 1: sync the journal, then let everything leave that waited."""
        if self._outbox:
            self._journal.sync()
            outbox, self._outbox = self._outbox, []
            for peer, message in outbox:
                self._network.send(peer, codec.encode(message))

    # what comes in

    def connected(self, peer: str) -> None:
        """A new connection to the peer is open."""
        self._on_connected(self._nodes[peer])

    def disconnected(self, peer: str) -> None:
        """The connection is closed."""
        self.windows[peer].clear()
        self._on_disconnected(self._nodes[peer])

    def received(self, peer: str, payload: bytes) -> None:
        """Handle one payload from an authenticated peer.

        Raises:
            WireError: it cannot be read; the connection must be closed.
        """
        message = codec.decode(payload)
        node = self._nodes[peer]
        match message:
            case Append():
                self._append(peer, node, message)
            case SnapshotPart():
                self._part(peer, node, message)
            case AppendAnswer():
                self._answer(peer, node, message)
            case RequestVote(term, index, last_term):
                fields = {"type": "request_vote", "term": term, "last_log_index": index, "last_log_term": last_term}
                self._deliver(node, fields)
            case Vote(term):
                if (term, peer) not in self._voters:
                    self._voters = {pair for pair in self._voters if pair[0] >= term} | {(term, peer)}
                    self._deliver(node, {"type": "response_vote", "term": term})
            case TimeoutNow(term):
                self._deliver(node, {"type": "timeout_now", "term": term})
            case PreVote(number, index, last_term):
                here, there = (self._last_term(), self._journal.last_index), (last_term, index)
                if self._raft.role != LEADER and not self._pre_votes.hears and here <= there:
                    self._outbox.append((peer, PreVoteGranted(number, self._raft.term)))
                    if self._pre_votes.gives_way(peer, here < there):
                        self._raft.postpone_election(ASK_AGAIN_SHARE)
            case PreVoteGranted(number, term):
                if self._raft.role != LEADER and self._pre_votes.granted(peer, number, term):
                    self._raft.stand(self._pre_votes.term)

    def _fresh(self, peer: str, term: int, seq: int) -> bool:
        """Row 3: only appends of a current leader, each newer than the one before."""
        if term < self._raft.term:
            self._pre_votes.heard_of_lower_term()
            return False
        if (term, seq) <= self._handled.get(peer, (0, 0)):
            return False
        self._handled[peer] = self._answering = (term, seq)
        self._pre_votes.heard()
        return True

    def _heard(self, node: Any, term: int, commit: int) -> None:
        """Tell the library only that the leader lives, and up to where the log is known equal and committed."""
        self._deliver(node, {"type": "append_entries", "term": term, "commit_index": commit, "serialized": None})

    def _append(self, peer: str, node: Any, message: Append) -> None:
        if not self._fresh(peer, message.term, message.seq):
            return
        if self.installing:
            self._heard(node, message.term, 0)
            self._outbox.append((peer, AppendAnswer(message.term, message.seq, 0, False, False)))
            return
        term_at = self._journal.term_at
        prev, entries = message.prev_index, message.entries
        verified = prev + len(entries)
        commit = min(message.commit_index, verified)
        here = term_at(prev)
        if here is not None and here != message.prev_term:
            self._check_cut(prev, message.prev_term)
        if here == message.prev_term:
            new = next((n for n, entry in enumerate(entries) if term_at(entry[1]) != entry[2]), None)
            if new is None:
                self._heard(node, message.term, commit)
                # Before a leader has committed in its own term it may know of less than what is committed.
                self.caught_up |= commit == message.commit_index and term_at(commit) == message.term
                self._outbox.append((peer, AppendAnswer(message.term, message.seq, verified + 1, False, True)))
                return
            entries = entries[new:]
            self._check_cut(entries[0][1], entries[0][2])
            prev += new
        fields = {
            "type": "append_entries",
            "term": message.term,
            "commit_index": commit,
            "entries": entries,
            "prevLogIdx": prev,
            "prevLogTerm": message.prev_term if prev == message.prev_index else term_at(prev),
        }
        self._deliver(node, fields)

    def _check_cut(self, index: int, term: int) -> None:
        if index <= self._raft.commit_index:
            raise RaftError(
                f"the leader's entry {index} of term {term} contradicts an entry committed here: "
                "this node's storage or its peers' was rolled back; find out which before starting it again"
            )

    def _part(self, peer: str, node: Any, part: SnapshotPart) -> None:
        if not self._fresh(peer, part.term, part.seq):
            return
        self._heard(node, part.term, 0)
        answer = AppendAnswer(part.term, part.seq, 0, False, False)
        known = self._raft.commit_index
        if self._journal.term_at(part.index) == part.last_term:
            answer = AppendAnswer(part.term, part.seq, part.index + 1, False, True)
        elif part.index <= known:
            answer = AppendAnswer(part.term, part.seq, known + 1, False, True)
        elif not self.installing and part.data:
            self.caught_up = False
            self._on_part(part)
        self._outbox.append((peer, answer))

    def _answer(self, peer: str, node: Any, answer: AppendAnswer) -> None:
        """Row 2: an answer counts in the term of the append that it answers, and nowhere else."""
        raft = self._raft
        if answer.term != raft.term or raft.role != LEADER:
            return
        window = self.windows[peer]
        window.answered(answer.seq)
        reset = answer.reset and answer.seq > window.reset_seq
        if reset:
            window.reset_seq = self._seq
        end = self._journal.last_index + 1
        if answer.success and answer.next_index > end:
            raise RaftError(f"{peer} claims entries up to {answer.next_index - 1}; the log ends at {end - 1}")
        before = raft.next_index[node]
        fields = {
            "type": "next_node_idx",
            "next_node_idx": max(2, min(answer.next_index, end)),  # entry 1 is the same everywhere
            "reset": reset,
            "success": answer.success,
        }
        self._deliver(node, fields)
        if answer.success:  # the library steps back to what is acknowledged; what is on its way need not go again
            raft.next_index[node] = max(before, raft.next_index[node])
