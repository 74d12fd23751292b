"""The verdict: what every operation came to, against what was done to the cluster meanwhile. Pure.

Exact is right, wrong is wrong. A refusal is right only where something explains it:

* the application was dropped, its client killed, or the generation forgotten, before the operation ended;
* a generation is not committed yet, or was committed with another attempt or by a rival;
* DATA_LOST, by name: the manifest calls an epoch of that partition lost, and each of its copies was acknowledged from
  memory on a worker that was killed before the commit, or was on one that stayed away longer than the grace;
* "try again" while something was done to the cluster, or shortly after.

When the schedule is over nothing of this counts but loss that the manifest tells: every committed generation of every
application that lives is read exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.consistency.history import Line

#: How long a fault is felt: leases of workers, connections that time out, windows that fill again.
AFTERMATH_SECONDS = 20.0
#: Violations that are kept word by word.
LEASES_NAMED_MAX = 40
_NEVER = float("inf")
_PASSING = frozenset({"RetryError", "NotLeaderError", "OutcomeUnknownError", "NoRoomError"})
_DATA = frozenset({"DATA_LOST", "CORRUPT"})
_OVER = frozenset({"COMMITTED", "SEALED", "CONFLICT"})

Key = tuple[str, int, int]


class Span(NamedTuple):
    """Something that was done to servers, until it was over and they were back."""

    what: str
    servers: tuple[str, ...]
    began: float
    ended: float


@dataclass
class Op:
    """An operation of a client."""

    who: str
    began: float
    line: Line
    ended: float = _NEVER
    outcome: Line = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """exact, ok, wrong, refused, bug, aborted; "" for one that never ended."""
        return str(self.outcome.get("outcome", ""))

    @property
    def key(self) -> Key | None:
        """The generation that it is about, if it is about one."""
        line = self.line
        return (line["app"], line["shuffle"], line["generation"]) if "shuffle" in line else None

    def __str__(self) -> str:
        named = " ".join(f"{key}={value}" for key, value in self.line.items() if key not in ("t", "who", "n"))
        came = " ".join(f"{key}={value}" for key, value in self.outcome.items() if key not in ("t", "who", "n"))
        return f"{self.began:.1f}–{self.ended:.1f} {self.who}: {named} → {came or 'never ended'}"


class Verdict:
    """What the histories of a run say. `violations` is empty where everything was as promised."""

    def __init__(self, lines: Iterable[Line], *, grace: float, lease: float, operation_max: float) -> None:
        self._lines = sorted(lines, key=lambda line: line["t"])
        self._grace, self._lease, self._operation_max = grace, lease, operation_max
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.spans = list(_spans(self._lines))
        self._ops = list(_ops(self._lines))
        self._of: dict[Key, dict[str, list[Op]]] = defaultdict(lambda: defaultdict(list))
        for op in self._ops:
            if op.key is not None:
                self._of[op.key][op.line["op"]].append(op)
        #: when this process had read everything that lived then
        self._all_read = next((line["t"] for line in self._lines if line.get("say") == "all read"), None)
        self._gone = dict(self._when_gone())
        self._workers = {
            int(number): name
            for line in self._lines
            if line.get("say") == "workers"
            for number, name in line["ids"].items()
        }
        self._says()
        for op in self._ops:
            self._judge(op)
        for key, ops in list(self._of.items()):
            self._judge_generation(key, ops)

    def _wrong(self, what: str) -> None:
        self.counts["violations"] += 1
        if len(self.violations) < LEASES_NAMED_MAX:
            self.violations.append(what)

    # What was done.

    def _when_gone(self) -> Iterator[tuple[str, float]]:
        """(application, from when on it may be gone): dropped, or without the client that renewed its lease."""
        ended = {line["servers"][0]: line["t"] for line in self._lines if line.get("fault") == "kill client"}
        found: dict[str, float] = {}
        for op in self._ops:
            if op.line["op"] == "drop":
                found[op.line["app"]] = min(found.get(op.line["app"], _NEVER), op.began)
            elif op.line["op"] == "open" and op.who in ended and not op.line["attach"]:
                found.setdefault(op.line["app"], ended[op.who])
        for line in self._lines:
            if line.get("say") == "takes over":
                found[line["app"]] = ended.get(line["who"], _NEVER)
            if line.get("say") == "dropping":
                found[line["app"]] = min(found.get(line["app"], _NEVER), line["t"])
        yield from found.items()

    def _killed(self, who: str) -> float:
        kills = [span for span in self.spans if span.what == "kill client" and who in span.servers]
        return min((span.began for span in kills), default=_NEVER)

    def _disturbed(self, op: Op) -> bool:
        return any(span.began <= op.ended and span.ended + AFTERMATH_SECONDS >= op.began for span in self.spans)

    def _is_over(self, op: Op) -> bool:
        """Whether what it is about was dropped or forgotten, or a newer generation came, before it ended."""
        if self._gone.get(op.line.get("app", ""), _NEVER) <= op.ended:
            return True
        return op.key is not None and self._ends(op.key) <= op.ended

    def _ends(self, key: Key) -> float:
        """When somebody began to forget it, or to commit the generation after it."""
        after = (*key[:2], key[2] + 1)
        ends = [*self._of[key]["forget"], *self._of[after]["commit"]]
        return min((op.began for op in ends), default=_NEVER)

    # Lines that are no operations.

    def _says(self) -> None:
        for line in self._lines:
            match line.get("say"):
                case "hangs":
                    self._wrong(f"{line['who']}: hangs: {line['operation']}\n{line['stacks']}")
                case "bug":
                    self._wrong(f"{line['who']}: a thread ended with {line['text']}")
                case "ends" if line["thread"] in ("live_long", "long", "live_short", "visit", "meddle", "take_over"):
                    self._wrong(f"{line['who']}: {line['thread']} ended: {line['error']}: {line['text']}")
                case "gave up":
                    gone = self._gone.get(line["app"], _NEVER)
                    if gone > line["t"]:
                        self._wrong(f"{line['t']:.1f} {line['who']}: no try was good enough: {line}")
                case "not back" | "unwell":
                    self._wrong(f"{line['t']:.1f} {line}")

    # Operations.

    def _judge(self, op: Op) -> None:
        what = op.line["op"]
        self.counts[f"{what}: {op.kind or 'cut short'}"] += 1
        match op.kind:
            case "":
                if self._killed(op.who) == _NEVER:
                    self._wrong(f"never ended: {op}")
                return
            case "wrong" | "bug":
                self._wrong(f"{op.kind.upper()}: {op}")
            case "refused":
                if not self._is_over(op) and (reason := self._refusal(op)):
                    self._wrong(f"{reason}: {op}")
        if op.ended - op.began > self._operation_max:
            self._wrong(f"took {op.ended - op.began:.0f} s: {op}")

    def _refusal(self, op: Op) -> str:
        """Why a refusal is not allowed, "" if it is."""
        error, status, what = op.outcome["error"], op.outcome["status"], op.line["op"]
        self.counts[f"{what} refused: {status}"] += 1
        if what == "read" and status in _DATA:
            return self._loss(op)
        if what in ("read", "find") and status in ("NOT_COMMITTED", "NEED_WINNERS"):
            return "a committed generation is called uncommitted" if self._committed(op.key) < op.began else ""
        if what == "write" and status in _OVER and self._commit_began(op.key) <= op.ended:
            return ""
        if what == "commit" and status in ("CONFLICT", "COMMITTED"):
            return "" if self._has_rival(op) else "a conflict without a rival"
        if what == "register" and op.line["generation"] and status in ("GENERATION_CLOSED", "CONFLICT"):
            return ""
        if op.line.get("when") == "final":
            return "refused when all was quiet"
        if error in _PASSING or what == "write":
            return "" if self._disturbed(op) else "told to try again, and nothing was done to the cluster"
        return "refused"

    def _committed(self, key: Key | None) -> float:
        """When the first commit of a generation was acknowledged."""
        commits = self._of[key]["commit"] if key else []
        return min((op.ended for op in commits if op.kind == "ok"), default=_NEVER)

    def _commit_began(self, key: Key | None) -> float:
        return min((op.began for op in self._of[key]["commit"]), default=_NEVER) if key else _NEVER

    def _has_rival(self, op: Op) -> bool:
        assert op.key is not None
        rivals = self._of[op.key]["commit"]
        return any(each.began <= op.ended and each.line["winners"] != op.line["winners"] for each in rivals)

    # Loss.

    def _loss(self, op: Op) -> str:
        text = op.outcome["text"]
        if "shuffle " not in text or ("partition" not in text and "map" not in text):
            return "a loss that does not say what of"
        assert op.key is not None
        wanted = set(op.line["partitions"])
        if any(epoch[2] and epoch[0] in wanted and self._is_excused(op.key, epoch) for epoch in self._epochs(op.key)):
            self.counts["lost with a reason"] += 1
            return ""
        if op.line["when"] != "final" and self._longest_absence(op) > self._grace:
            return ""
        return "LOST"

    def _epochs(self, key: Key) -> list[Any]:
        for op in self._of[key]["manifest"]:
            if op.kind == "ok":
                return list(op.outcome.get("epochs", []))
        return []

    def _is_excused(self, key: Key, epoch: Any) -> bool:
        """Whether every copy of an epoch was killed while it was acknowledged from memory, or away for too long."""
        registers = [op for op in self._of[key]["register"] if op.kind == "ok"]
        if not registers:
            return False
        begin, end = registers[0].began - AFTERMATH_SECONDS, self._committed(key)
        memory = registers[0].line["ack"] == "MEMORY"
        for worker, _ in epoch[3]:
            name = self._workers.get(worker, "")
            spans = [one for one in self.spans if name in one.servers and one.began <= end and one.ended >= begin]
            killed = memory and any(one.what.startswith("kill") for one in spans)
            away = any(one.ended - one.began > self._grace for one in spans)
            if not (killed or away):
                return False
        return True

    def _longest_absence(self, op: Op) -> float:
        spans = [one for one in self.spans if one.began <= op.ended and one.ended >= op.began]
        return max((one.ended - one.began for one in spans), default=0.0)

    # Generations.

    def _judge_generation(self, key: Key, ops: dict[str, list[Op]]) -> None:
        """One commit, one set of winners, no loss without a reason, and everything read at the end."""
        accepted = {tuple(op.line["winners"]) for op in ops["commit"] if op.kind == "ok"}
        if len(accepted) > 1:
            self._wrong(f"{key}: two commits were accepted: {accepted}")
        said = {tuple(op.line["winners"]) for op in ops["commit"]}
        read = [op for op in (*ops["read"], *ops["manifest"]) if op.kind in ("exact", "ok")]
        reported = {tuple(op.outcome["winners"]) for op in read}
        if len(reported) > 1:
            self._wrong(f"{key}: readers were told of different winners: {reported}")
        if reported - (accepted or said):
            self._wrong(f"{key}: readers were told of winners {reported - (accepted or said)}, accepted was {accepted}")
        if any(op.ended < self._commit_began(key) for op in read):
            self._wrong(f"{key}: read before anybody committed it")
        for epoch in self._epochs(key):
            if epoch[2]:
                self.counts["epochs lost"] += 1
                if not self._is_excused(key, epoch):
                    self._wrong(f"{key}: called LOST without a reason: partition {epoch[0]} epoch {epoch[1]}, {epoch}")
        self._judge_end(key, ops)

    def _judge_end(self, key: Key, ops: dict[str, list[Op]]) -> None:
        """A committed generation of an application that lives to the end is read whole, by its own and by others."""
        if self._all_read is None or not any(op.kind == "ok" for op in ops["manifest"]) or self._ends(key) < _NEVER:
            return
        if self._gone.get(key[0], _NEVER) <= self._all_read or any(epoch[2] for epoch in self._epochs(key)):
            return
        self.counts["generations that live to the end"] += 1
        readers = {op.who for op in ops["read"] if op.line["when"] == "final" and op.kind == "exact"}
        if len(readers) < 2:
            self._wrong(f"{key}: committed, never forgotten, and at the end read exactly by {readers or 'nobody'}")


def _ops(lines: Iterable[Line]) -> Iterator[Op]:
    """Every operation, with its end if it has one, in the order of their beginnings."""
    found: dict[tuple[str, int], Op] = {}
    for line in lines:
        if "op" in line:
            found[line["who"], line["n"]] = Op(line["who"], line["t"], line)
        elif "outcome" in line:
            op = found[line["who"], line["n"]]
            op.ended, op.outcome = line["t"], line
    yield from found.values()


def _spans(lines: Iterable[Line]) -> Iterator[Span]:
    """Every fault with its end; without one it goes on for ever."""
    running: dict[tuple[str, tuple[str, ...]], float] = {}
    for line in lines:
        if "fault" in line:
            running[line["fault"], tuple(line["servers"])] = line["t"]
        elif "over" in line:
            key = line["over"], tuple(line["servers"])
            yield Span(*key, running.pop(key), line["t"])
    for (what, servers), began in running.items():
        yield Span(what, servers, began, _NEVER)
