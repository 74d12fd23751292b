"""The table of who may call what: complete, and no wider than what is written here."""

import pytest

from holdfast.common.errors import ForbiddenError
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import SEES, Bearer, TokenKind, must_be
from holdfast.master.api.access import METHOD_KINDS, check_call, check_owner

OWN, OTHER = bytes(16), bytes(15) + b"x"
SUBJECTS = {TokenKind.APPLICATION: OWN, TokenKind.USER: b"etl"}
#: What a user's token is good for; who owns the application is looked at where the state is.
OF_USERS = ("Discover", "ListWorkers", "RegisterApplication", "Attach", "ListApplications", "Forget", "ReportFallback")
#: What changes or tells something of an application.
OF_APPLICATIONS = [name for name, kinds in METHOD_KINDS.items() if kinds == (TokenKind.APPLICATION,)]


def bearer(kind: TokenKind) -> Bearer:
    """Somebody with a token of that kind."""
    return Bearer(kind, SUBJECTS.get(kind, b"name"), 1 << 40)


def allowed(kind: TokenKind, method: str, request: object | None = None) -> bool:
    """Whether a call is let in."""
    try:
        check_call(bearer(kind), method, METHODS[method].request() if request is None else request)
    except ForbiddenError:
        return False
    return True


def test_every_method_has_its_rule() -> None:
    """A method that was added and forgotten here could be called by nobody, which nobody would notice without
    security."""
    assert METHOD_KINDS.keys() == METHODS.keys()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_changes_the_cluster_takes_an_admin_or_a_server(method: str) -> None:
    """A viewer sees and changes nothing; users only make applications; workers' calls are workers'."""
    service, _, name = method.partition("/")
    sees = name.startswith(("Status", "List", "Describe", "Explain", "Discover", "Event"))
    assert allowed(TokenKind.VIEWER, method) == sees
    assert allowed(TokenKind.USER, method) == (name in OF_USERS)
    if service == "Registry":
        assert METHOD_KINDS[method] == (TokenKind.SERVER,)
    if service == "Admin":
        assert allowed(TokenKind.ADMIN, method)
        assert allowed(TokenKind.APPLICATION, method) == (name == "ListWorkers")


@pytest.mark.parametrize("method", sorted([*OF_APPLICATIONS, "Shuffles/Attach"]))
def test_an_application_calls_in_its_own_name_only(method: str) -> None:
    """Its own instance is let in; another's, and none, are not; nor is anybody else for it."""
    for instance in (OWN, OTHER, b""):
        request = METHODS[method].request()
        if "key" in request.DESCRIPTOR.fields_by_name:
            request.key.CopyFrom(pb.ShuffleKey(instance=instance))  # type: ignore[attr-defined]
        else:
            request.instance = instance  # type: ignore[attr-defined]
        assert allowed(TokenKind.APPLICATION, method, request) == (instance == OWN), instance
    if method in OF_APPLICATIONS:
        assert not any(allowed(kind, method) for kind in TokenKind if kind is not TokenKind.APPLICATION)


def test_what_is_not_in_the_table_is_nobodys() -> None:
    """The default is no."""
    for kind in TokenKind:
        with pytest.raises(ForbiddenError):
            check_call(bearer(kind), "Admin/Unheard", pb.StatusRequest())


def test_pages_and_owners() -> None:
    """Pages are for those that see; an application is for its user and for admins; without security all is let in."""
    for kind in TokenKind:
        if kind in (TokenKind.VIEWER, TokenKind.ADMIN, TokenKind.SERVER):
            must_be(bearer(kind), *SEES)
        else:
            with pytest.raises(ForbiddenError):
                must_be(bearer(kind), *SEES)
    check_owner(bearer(TokenKind.USER), "etl")
    check_owner(bearer(TokenKind.ADMIN), "etl")
    with pytest.raises(ForbiddenError):
        check_owner(bearer(TokenKind.USER), "other")
    must_be(None, *SEES)
    check_owner(None, "any")
    check_call(None, "Admin/Forget", pb.ForgetRequest())
