"""Refuses new shuffles of applications and users that hold what they may, and says which quota that is.

Rules: looked at when a shuffle is registered that never was before; generations of one that was, pushes and reads are
never refused. Usage is what live workers reported last, a heartbeat ago at most. Called by shuffles.py; the
Registry gets the reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from holdfast.common.errors import QuotaExceededError
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import UsageTotals, counted, in_bytes
from holdfast.master.core.state.records import Application
from holdfast.master.core.state.state import State
from holdfast.master.core.usage import Owned, QuotaLimits, Row, exceeded
from holdfast.master.leader.leader import Leader


class Quotas:
    """The quotas of the configuration."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        quota = leader.config.quota
        self._application = QuotaLimits(quota.application_bytes, quota.application_files)
        self._user = QuotaLimits(quota.user_bytes, quota.user_files)
        self._users = {each.user: QuotaLimits(each.bytes, each.files) for each in quota.users}

    def of_application(self) -> QuotaLimits:
        """What each application may hold."""
        return self._application

    def of_user(self, user: str) -> QuotaLimits:
        """What all applications of a user may hold together."""
        return self._users.get(user, self._user)

    @property
    def counts_users(self) -> bool:
        """Whether any user has a limit."""
        return any(self._user) or bool(self._users)

    def heard(self, worker: int, applications: Iterable[pb.ApplicationHeld]) -> None:
        """Record a worker's report of how much each application holds there."""
        self._leader.usage.heard(worker, [_row(each) for each in applications])

    def check_user(self, instance: bytes, user: str) -> None:
        """Raise QuotaExceededError if the application is new, and its user has so many that others would lack room."""

        def refusal(state: State) -> str:
            shares = state.applications_of
            if instance in state.applications or shares.fits(user, 1):
                return ""
            return _too_much(user, counted(shares.held(user), "application"), f"{shares.total} of {shares.most}")

        reason = self._leader.peek(refusal)
        if reason:
            raise QuotaExceededError(reason)

    def check(self, key: ShuffleKey) -> None:
        """Raise QuotaExceededError if the shuffle is new, and its application or user has what it may have."""
        self._check_share(key)
        if not (any(self._application) or self.counts_users):
            return
        application, owned, gone = self._leader.peek(lambda state: self._look(state, key))
        for worker in gone:
            self._leader.usage.heard(worker, ())
        if application is None:
            return
        reason = exceeded(
            self._leader.usage,
            Owned(application.instance, application.name),
            self._application,
            application.user,
            owned,
            self.of_user(application.user),
            application.user in self._users,
        )
        if reason:
            self._refuse(application, reason)

    def _check_share(self, key: ShuffleKey) -> None:
        """Refuse a new shuffle of a user that has so much of what the masters hold that others would lack room."""

        def refusal(state: State) -> tuple[Application | None, str]:
            application = state.applications.get(key.instance)
            if application is None or state.head(key.instance, key.shuffle) is not None:
                return None, ""
            user, shuffles, size = application.user, state.shuffles_of, state.bytes_of
            if not shuffles.fits(user, 1):
                held, all_of = counted(shuffles.held(user), "shuffle"), f"{shuffles.total} of {shuffles.most}"
            elif not size.fits(user, 0):
                held = f"{in_bytes(size.held(user))} of places and winners of shuffles"
                all_of = f"{in_bytes(size.total)} of {in_bytes(size.most)}"
            else:
                return None, ""
            return application, _too_much(user, held, all_of)

        application, reason = self._leader.peek(refusal)
        if application is not None:
            self._refuse(application, reason)

    def _refuse(self, application: Application, reason: str) -> NoReturn:
        self._leader.counts.quota_refusals += 1
        instance = application.instance.hex()
        self._leader.events.tell(
            LogEvent.QUOTA_EXCEEDED, application=application.name, instance=instance, reason=reason
        )
        raise QuotaExceededError(reason)

    def _look(self, state: State, key: ShuffleKey) -> tuple[Application | None, list[Owned], list[int]]:
        """Return the application if the shuffle is new, what its user owns, and lost workers with a report."""
        application = state.applications.get(key.instance)
        if application is None or state.head(key.instance, key.shuffle) is not None:
            return None, [], []
        owned = [
            Owned(each.instance, each.name) for each in state.applications.values() if each.user == application.user
        ]
        owned += self._leader.usage.ended(application.user, state.applications)
        heard = ((worker, state.workers.get(worker)) for worker in self._leader.usage.workers)
        return application, owned, [number for number, worker in heard if worker is None or not worker.alive]


def _too_much(user: str, held: str, all_of: str) -> str:
    return (
        f'user "{user}" has {held}, and gets no more while {all_of} are taken on the masters, since others need room; '
        "end applications or unregister shuffles that are not needed any more"
    )


def _row(report: pb.ApplicationHeld) -> Row:
    shuffles = tuple([(each.shuffle, UsageTotals(each.bytes, each.files)) for each in report.largest])
    return Row(report.instance, UsageTotals(report.bytes, report.files), shuffles)
