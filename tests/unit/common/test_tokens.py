"""Tokens: good for one cluster and one time, whatever of them is changed; what is refused is not repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.errors import ConfigError, ForbiddenError, TokenExpiredError, UnauthenticatedError
from holdfast.common.security.credentials import Credentials
from holdfast.common.security.tokens import (
    PREFIX,
    SKEW_S,
    Keeper,
    TokenKind,
    bearer_of,
    must_be,
    must_be_at,
    share_owner,
    subject_only_at,
    times_of,
)

SECRET = bytes(range(32))
KEEPER = Keeper(SECRET, "prod")
NOW = 1_800_000_000


@given(kind=st.sampled_from(list(TokenKind)), subject=st.binary(min_size=16, max_size=255), life=st.integers(1, 10**9))
def test_a_token_says_who_its_bearer_is_until_it_ends(kind: TokenKind, subject: bytes, life: int) -> None:
    """What was put in comes out, to the last second and no longer; anybody may read it."""
    token = KEEPER.mint(kind, subject, NOW, life)
    identity = KEEPER.verify(token, NOW + life - 0.001)
    if kind is TokenKind.APPLICATION:
        subject, of_user = subject[:16], subject[16:]
        assert identity.of_user == of_user
    assert (identity.kind, identity.subject, identity.expires_s) == (kind, subject, NOW + life)
    with pytest.raises(TokenExpiredError):
        KEEPER.verify(token, NOW + life)
    assert bearer_of(token) == (kind, subject)
    assert times_of(token) == (NOW, NOW + life)


def test_the_bytes_of_a_token_stay() -> None:
    """Two versions run side by side while a cluster is upgraded, and read each other's tokens."""
    keeper = Keeper(b"sixteen letters!", "c")
    for kind, subject, token in (
        (TokenKind.USER, b"etl", "hft1.AgDxU2UAAAAAEP9TZQAAAABldGzVOj7qJ8NYOb3mQ4aBYkqRWJWUI4EK4CaUzX0whbG3sA"),
        (
            TokenKind.APPLICATION,
            bytes(range(16)),
            "hft1.AQDxU2UAAAAAEP9TZQAAAAAAAQIDBAUGBwgJCgsMDQ4P33bY3ZlNPD7DGlN3vQWGJo7JJatbqAFs49QAu0AP3-M",
        ),
        (
            TokenKind.APPLICATION,
            bytes(range(16)) + share_owner(b"etl"),
            "hft1.AQDxU2UAAAAAEP9TZQAAAAAAAQIDBAUGBwgJCgsMDQ4PYx_Y4f-sk-SzTlj2KSfsUQJmFqu51NUZCrsPvieFCO-EiclV3fU5zg",
        ),
    ):
        assert keeper.mint(kind, subject, 1_700_000_000, 3_600) == token


def test_a_user_and_each_application_of_that_user_have_one_share() -> None:
    """Whose share it is stands in the token, also when the application has ended; all that do not say so have one."""
    instance = bytes(range(16))

    def owner(kind: TokenKind, subject: bytes) -> bytes:
        return KEEPER.verify(KEEPER.mint(kind, subject, NOW, 60), NOW).share_owner

    etl = owner(TokenKind.USER, b"etl")
    assert etl == share_owner(b"etl") == owner(TokenKind.APPLICATION, instance + share_owner(b"etl"))
    assert len({etl, owner(TokenKind.USER, b"elt"), owner(TokenKind.APPLICATION, instance)}) == 3
    assert owner(TokenKind.APPLICATION, instance) == owner(TokenKind.APPLICATION, instance[::-1])
    token = KEEPER.mint(TokenKind.APPLICATION, instance + share_owner(b"etl"), NOW, 60)
    assert bearer_of(token) == (TokenKind.APPLICATION, instance)


def test_another_secret_is_taken_and_makes_nothing() -> None:
    """While the secret is changed, tokens of both are good, and new ones are of the first."""
    after = bytes(range(32, 64))
    changing = Keeper(after, "prod", SECRET)
    for maker in (KEEPER, changing):
        assert changing.verify(maker.mint(TokenKind.USER, b"etl", NOW, 60), NOW).subject == b"etl"
    Keeper(after, "prod").verify(changing.mint(TokenKind.USER, b"etl", NOW, 60), NOW)
    with pytest.raises(UnauthenticatedError):
        KEEPER.verify(changing.mint(TokenKind.USER, b"etl", NOW, 60), NOW)
    with pytest.raises(ConfigError, match="16 are needed"):
        Keeper(after, "prod", b"short")


@given(at=st.integers(0, 200), flip=st.integers(1, 127))
def test_a_token_that_was_changed_is_none(at: int, flip: int) -> None:
    """Whichever character is another one, the answer is the same error and has nothing of the token in it."""
    token = KEEPER.mint(TokenKind.USER, b"etl", NOW, 60)
    at %= len(token)
    changed = token[:at] + chr(ord(token[at]) ^ flip) + token[at + 1 :]
    refused = refusal(changed)
    assert refused
    assert token[10:] not in refused
    assert changed[10:] not in refused


def refusal(token: str) -> str:
    """Why a token is refused, "" if it is not."""
    try:
        KEEPER.verify(token, NOW)
    except UnauthenticatedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("wrong", ["", "x", PREFIX, PREFIX + "AAAA", "Bearer x", PREFIX + "ä", PREFIX + "A" * 5_000])
def test_garbage_is_refused(wrong: str) -> None:
    """No text makes anything but UnauthenticatedError, and whose it is cannot be read from it."""
    with pytest.raises(UnauthenticatedError):
        KEEPER.verify(wrong, NOW)
    assert bearer_of(wrong) == (0, b"")
    assert times_of(wrong) == (0, 0)


def test_a_token_serves_in_one_cluster() -> None:
    """Another secret and another cluster id refuse it, and so does an earlier time than its own."""
    token = KEEPER.mint(TokenKind.ADMIN, b"ops", NOW, 60)
    for keeper in (Keeper(SECRET, "test"), Keeper(SECRET[::-1], "prod")):
        with pytest.raises(UnauthenticatedError, match="secret of this cluster"):
            keeper.verify(token, NOW)
    with pytest.raises(UnauthenticatedError, match="clocks"):
        KEEPER.verify(token, NOW - SKEW_S - 1)
    assert KEEPER.verify(token, NOW - SKEW_S).kind is TokenKind.ADMIN
    with pytest.raises(ConfigError, match="16"):
        Keeper(b"short", "prod")


def test_kinds_are_asked_for_by_name() -> None:
    """A bearer of another kind hears which one is wanted; without security there is nothing to ask."""
    viewer = KEEPER.verify(KEEPER.mint(TokenKind.VIEWER, b"eve", NOW, 60), NOW)
    must_be(viewer, TokenKind.ADMIN, TokenKind.VIEWER)
    must_be(None, TokenKind.ADMIN)
    with pytest.raises(ForbiddenError, match="admin or server, not viewer"):
        must_be(viewer, TokenKind.ADMIN, TokenKind.SERVER)


@pytest.mark.parametrize("token", ["é", "a\r\nHost: b", "a b", "\ud800", "a\0"])
def test_what_no_header_can_carry_is_no_token(token: str) -> None:
    """It is refused where it is given; a call ended with an error of coding, or with headers that nobody meant."""
    with pytest.raises(ConfigError, match="is invalid"):
        Credentials("CA", token)


def test_credentials_keep_the_newest_token_and_tell_none() -> None:
    """A newer token replaces an older one, never the other way round; repr and str have neither."""
    old, new = (KEEPER.mint(TokenKind.USER, b"etl", NOW, life) for life in (60, 120))
    credentials = Credentials("CA", old)
    credentials.renew(new)
    credentials.renew(old)
    credentials.renew("")
    assert credentials.token == new
    assert credentials.half_over(NOW + 61)
    assert not credentials.half_over(NOW + 59)
    assert new not in repr(credentials) + str(credentials)
    assert credentials.with_token(old).token == old


def test_variables_go_together() -> None:
    """One of the two variables without the other is a mistake that is told; neither is no security."""
    assert Credentials.from_environment({}) is None
    with pytest.raises(ConfigError, match="set HOLDFAST_TOKEN_FILE"):
        Credentials.from_environment({"HOLDFAST_CA": "/ca.pem"})
    with pytest.raises(ConfigError, match="cannot read the CA from /nowhere"):
        Credentials.from_environment({"HOLDFAST_CA": "/nowhere", "HOLDFAST_TOKEN_FILE": "/nowhere"})


@given(name=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=255), port=st.integers(0, 65_535))
def test_a_token_for_one_server_is_good_there_alone(name: str, port: int) -> None:
    """However long the names are; a server's other tokens are good at all."""
    address = f"{name[:60]}:{port}"
    token = KEEPER.mint(TokenKind.SERVER, subject_only_at(name.encode(), address), NOW, 60)
    only = KEEPER.verify(token, NOW)
    must_be_at(only, address)
    for other in ("", f"{address}0", f"x{address}", "w1:7071"):
        with pytest.raises(UnauthenticatedError):
            must_be_at(only, other)
    assert str(only).endswith(f", only for {address}")
    must_be_at(KEEPER.verify(KEEPER.mint(TokenKind.SERVER, name.encode(), NOW, 60), NOW), address)
