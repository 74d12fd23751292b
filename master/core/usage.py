"""How much every application holds on the workers, by their heartbeats, and which quota that exceeds.

Rules: pure; kept in the leader's memory, so that a new leader has it after a heartbeat of every worker. Each worker
reports a bounded number of applications, the largest, and a few shuffles of each; sums are kept, not added up again.
Bytes and files are counted as they are stored: second copies count. An application that ended counts for its user until
the workers have deleted what it had. Called by master/control/quotas.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.common.ids import shuffle_name
from holdfast.common.sizes import UsageTotals, counted, in_bytes

#: Applications whose user is remembered, those that ended as well; the oldest are forgotten first.
OWNED_MAX = 16_384


class Row(NamedTuple):
    """The report of one worker on one application: all it holds, and its largest shuffles there."""

    instance: bytes
    held: UsageTotals
    shuffles: tuple[tuple[int, UsageTotals], ...] = ()


class QuotaLimits(NamedTuple):
    """What may be held; 0: any number."""

    size_bytes: int = 0
    files: int = 0

    def met(self, held: UsageTotals) -> str:
        """Say which limit was reached, "" if none was."""
        if self.too_large(held):
            return f"{in_bytes(held.size_bytes)} of {in_bytes(self.size_bytes)}"
        if self.files and held.files >= self.files:
            return f"{counted(held.files, 'file')} of {self.files}"
        return ""

    def key(self, of: str, held: UsageTotals) -> str:
        """The key of the configuration that says the limit which was reached, of an "application" or a "user"."""
        return f"{of}_{'bytes' if self.too_large(held) else 'files'}"

    def too_large(self, held: UsageTotals) -> bool:
        """Whether it is the bytes that are too many."""
        return bool(self.size_bytes) and held.size_bytes >= self.size_bytes


@dataclass(slots=True)
class _Application:
    held: UsageTotals = UsageTotals()
    shuffles: dict[int, UsageTotals] = field(default_factory=dict)


class Owned(NamedTuple):
    """An application, as refusals name it."""

    instance: bytes
    name: str


class Usage:
    """Sums over the reports of all workers."""

    def __init__(self) -> None:
        self._rows: dict[int, Sequence[Row]] = {}
        self._applications: dict[bytes, _Application] = {}
        #: whose applications are that called, by instance
        self._users: dict[bytes, tuple[str, str]] = {}

    def called(self, user: str, application: Owned) -> None:
        """Remember whose an application is."""
        self._users.pop(application.instance, None)
        self._users[application.instance] = user, application.name
        if len(self._users) > OWNED_MAX:
            del self._users[next(iter(self._users))]

    def ended(self, user: str, living: Container[bytes]) -> list[Owned]:
        """The applications of a user that hold something and do not live any more."""
        gone = [(each, self._users[each]) for each in self._applications if each in self._users and each not in living]
        return [Owned(instance, name) for instance, (of_user, name) in gone if of_user == user]

    @property
    def workers(self) -> list[int]:
        """Those with a report that is not empty."""
        return list(self._rows)

    def heard(self, worker: int, rows: Sequence[Row]) -> None:
        """Replace the report of a worker."""
        for row in self._rows.pop(worker, ()):
            self._add(row, -1)
        for row in rows:
            self._add(row, 1)
        if rows:
            self._rows[worker] = rows

    def of(self, instance: bytes) -> UsageTotals:
        """What an application holds."""
        return self._applications.get(instance, _Application()).held

    def shuffles(self, instance: bytes) -> dict[int, UsageTotals]:
        """What the reported shuffles of an application hold, which are the largest."""
        return dict(self._applications.get(instance, _Application()).shuffles)

    def rows(self) -> dict[int, Sequence[Row]]:
        """The reports by worker, which never change."""
        return dict(self._rows)

    def _add(self, row: Row, sign: int) -> None:
        found = self._applications.setdefault(row.instance, _Application())
        found.held = found.held.plus(row.held, sign)
        assert min(found.held) >= 0, "no worker's usage falls below zero"
        for shuffle, held in row.shuffles:
            left = found.shuffles.get(shuffle, UsageTotals()).plus(held, sign)
            if left == UsageTotals():
                found.shuffles.pop(shuffle, None)
            else:
                found.shuffles[shuffle] = left
        if found.held == UsageTotals() and not found.shuffles:
            del self._applications[row.instance]

    def check(self) -> None:
        """Add everything up again; an AssertionError is a bug."""
        again = Usage()
        for worker, rows in self._rows.items():
            again.heard(worker, rows)
        assert again._applications == self._applications


def exceeded(
    usage: Usage,
    asker: Owned,
    application: QuotaLimits,
    user: str,
    owned: Iterable[Owned],
    of_user: QuotaLimits,
    own_row: bool = False,
) -> str:
    """Return which quota of the application or of its user, the owner of those, is used up, and by what; "" if none is.
    `own_row`: the limits of this user are in quota.users, not those of all users."""
    own = usage.of(asker.instance)
    met = application.met(own)
    if met:
        largest = _largest_shuffle(usage, asker, application.too_large(own))
        return (
            f'application "{asker.name}" holds {met} that an application may have{largest}. Unregister shuffles that '
            "are not needed any more (in Spark: unpersist and drop DataFrames that are no longer used), or ask for "
            "more: "
            f"{application.key('application', own)} in [quota] of the masters"
        )
    if of_user == QuotaLimits():
        return ""
    found = list(owned)
    total = UsageTotals()
    for each in found:
        total = total.plus(usage.of(each.instance))
    met = of_user.met(total)
    if not met:
        return ""
    by_size = of_user.too_large(total)
    most = max(found, key=lambda each: _measure(usage.of(each.instance), by_size))
    return (
        f'user "{user}" holds {met} that its quota allows in {counted(len(found), "application")}; largest: '
        f'application "{most.name}" ({most.instance.hex()[:8]}) with {_text(usage.of(most.instance))}'
        f"{_largest_shuffle(usage, most, by_size)}. End applications, drop shuffles, or ask for more: "
        f"{_key_of_user(user, of_user.key('user', total), own_row)}"
    )


def _key_of_user(user: str, key: str, own_row: bool) -> str:
    """The configuration key of a user's limit."""
    if own_row:
        return f'{key.removeprefix("user_")} of user "{user}" in quota.users of the masters'
    return f"{key} in [quota] of the masters"


def _largest_shuffle(usage: Usage, application: Owned, by_size: bool) -> str:
    shuffles = usage.shuffles(application.instance)
    if not shuffles:
        return ""
    most = max(shuffles, key=lambda each: _measure(shuffles[each], by_size))
    return f", largest: shuffle {shuffle_name(application.name, most)} with {_text(shuffles[most])}"


def _measure(held: UsageTotals, by_size: bool) -> int:
    return held.size_bytes if by_size else held.files


def _text(held: UsageTotals) -> str:
    return f"{in_bytes(held.size_bytes)} in {counted(held.files, 'file')}"
