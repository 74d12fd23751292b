"""Who may call what, once security is on: one table over all methods and pages. Pure.

Rules: no caller may use a method that is not in the table. An application's token admits calls that name its
own instance, and no others; an answer shows nothing of other applications, not even whether one
is there. Called by handlers.py and http.py; the owner of an application is checked in shuffles.py and admin.py, where
the state is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

from holdfast.common.errors import ForbiddenError
from holdfast.common.security.tokens import SEES, Bearer, TokenKind, must_be

#: Who makes the call that is being answered; None without security.
CALLER: ContextVar[Bearer | None] = ContextVar("caller", default=None)
#: From which host it comes.
HOST: ContextVar[str] = ContextVar("host", default="")

_ANYBODY = tuple(TokenKind)
_OWNS = (TokenKind.APPLICATION,)
_OPENS = (TokenKind.USER, TokenKind.ADMIN)
#: Kinds of tokens that a method takes; with APPLICATION alone or among others, its own instance only.
METHOD_KINDS: dict[str, tuple[TokenKind, ...]] = {
    "Shuffles/Discover": _ANYBODY,
    "Shuffles/RegisterApplication": _OPENS,
    "Shuffles/Attach": (*_OPENS, TokenKind.APPLICATION),
    "Shuffles/RenewLease": _OWNS,
    "Shuffles/Detach": _OWNS,
    "Shuffles/RegisterShuffle": _OWNS,
    "Shuffles/Revive": _OWNS,
    "Shuffles/Commit": _OWNS,
    "Shuffles/GetManifest": _OWNS,
    "Shuffles/UnregisterShuffle": _OWNS,
    # The application may not be registered: that may be why.
    "Shuffles/ReportFallback": (*_OPENS, TokenKind.APPLICATION),
    "Registry/RegisterWorker": (TokenKind.SERVER,),
    "Registry/Heartbeat": (TokenKind.SERVER,),
    "Registry/CheckShuffles": (TokenKind.SERVER,),
    "Registry/LookUp": (TokenKind.SERVER,),
    "Admin/Status": SEES,
    # Clients find workers by it when an address has changed.
    "Admin/ListWorkers": _ANYBODY,
    "Admin/ListShuffles": SEES,
    "Admin/DescribeShuffle": SEES,
    "Admin/ListEvents": SEES,
    "Admin/ExplainPlacement": SEES,
    # A user sees and drops what is that user's.
    "Admin/ListApplications": (*SEES, TokenKind.USER),
    "Admin/Forget": (TokenKind.ADMIN, TokenKind.USER),
    "Admin/Reload": (TokenKind.ADMIN,),
    "Admin/DrainWorkers": (TokenKind.ADMIN,),
    "Admin/RemoveWorkers": (TokenKind.ADMIN,),
    "Admin/HandOver": (TokenKind.ADMIN,),
}
#: Of an application's calls, those that name no instance and show nothing of any.
_WITHOUT_INSTANCE = frozenset({"Shuffles/Discover", "Admin/ListWorkers"})


def share_owner(instance: bytes) -> Hashable:
    """Whose share the call that is being answered takes of: its user's, and then the application's that it names;
    that one's alone without security."""
    caller = CALLER.get()
    return (instance,) if caller is None else (caller.share_owner, instance)


def check_method(identity: Bearer | None, method: str) -> None:
    """Raise ForbiddenError unless the bearer may make some call of this method; nothing of it has to be read yet."""
    must_be(identity, *METHOD_KINDS.get(method, ()))


def check_call(identity: Bearer | None, method: str, request: Any) -> None:
    """Raise ForbiddenError unless the bearer may make this call; None means a cluster without security."""
    if identity is None:
        return
    check_method(identity, method)
    if identity.kind is TokenKind.APPLICATION and method not in _WITHOUT_INSTANCE:
        named = request.key.instance if "key" in request.DESCRIPTOR.fields_by_name else request.instance
        if named != identity.subject:
            raise ForbiddenError("this token is of another application")


def is_owner(identity: Bearer | None, user: str) -> bool:
    """Whether the bearer may act for an application of this user: anybody but another user."""
    return identity is None or identity.kind is not TokenKind.USER or identity.subject == user.encode()


def check_owner(identity: Bearer | None, user: str) -> None:
    """Raise ForbiddenError unless `is_owner`."""
    if not is_owner(identity, user):
        raise ForbiddenError("this application is another user's")


def user_of(identity: Bearer | None, owner: Callable[[bytes], str | None]) -> str | None:
    """The calling user, `owner` being that of an instance; None if unknown, or for operators."""
    if identity is None or identity.kind not in (TokenKind.APPLICATION, TokenKind.USER):
        return None
    return (
        owner(identity.subject)
        if identity.kind is TokenKind.APPLICATION
        else identity.subject.decode("utf-8", "replace")
    )
