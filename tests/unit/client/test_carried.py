"""What is pickled of a shuffle on a secured cluster: its token is sealed, and opens where it should."""

import multiprocessing
import pickle
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

import pytest

from holdfast.client.connection.carried import seal, unseal
from holdfast.client.connection.ticket import Ticket
from holdfast.common.errors import ConfigError
from holdfast.common.ids import Instance
from holdfast.common.security.credentials import Credentials
from holdfast.common.security.tokens import PREFIX, Keeper, TokenKind

INSTANCE = Instance(bytes(range(16)))
TOKEN = Keeper(bytes(32), "here").mint(TokenKind.APPLICATION, INSTANCE, 1_000, 3_600)


def ticket() -> Ticket:
    """Of an application on a secured cluster."""
    return Ticket("one:1", "here", INSTANCE, bytes(16), credentials=Credentials("a CA", TOKEN))


def tell(data: bytes, out: Connection) -> None:
    """In another process: which token is in what was pickled."""
    found = pickle.loads(data).credentials  # noqa: S301 - our own bytes
    out.send((found.ca_pem, found.token))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a26_what_is_pickled_has_no_token_that_others_could_read(how: str) -> None:
    """A pickled ticket has neither the token nor its beginning; processes that this one makes have it all the same."""
    data = pickle.dumps(ticket())
    assert PREFIX.encode() not in data
    assert TOKEN[-20:].encode() not in data
    assert pickle.dumps(ticket()) != data, "two are sealed alike"
    context: Any = multiprocessing.get_context(how)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=tell, args=(data, theirs))
    child.start()
    assert ours.poll(60)
    assert ours.recv() == ("a CA", TOKEN)
    child.join(60)


def test_a26_another_process_cannot_open_it_and_says_what_to_do() -> None:
    """A process that this one did not make hears how to take part; bytes that were changed open nowhere."""
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(ticket()), capture_output=True, check=False)
    said = done.stderr.decode()
    assert "the token of this shuffle is sealed" in said
    assert "Session(endpoints, app=NAME, attach=True)" in said
    sealed = seal(TOKEN)
    assert unseal(sealed) == TOKEN
    for at in range(len(sealed)):
        spoiled = bytearray(sealed)
        spoiled[at] ^= 1
        with pytest.raises(ConfigError):
            unseal(bytes(spoiled))
    for length in range(len(sealed)):
        with pytest.raises(ConfigError):
            unseal(sealed[:length])


def test_a26_credentials_are_never_pickled() -> None:
    """By accident no file and no task has a token, and no text of any of these objects."""
    with pytest.raises(TypeError, match="credentials are not pickled"):
        pickle.dumps(Credentials("a CA", TOKEN))
    assert TOKEN not in repr(ticket())
    assert pickle.loads(pickle.dumps(ticket())) is not None  # noqa: S301 - our own bytes
    without = Ticket("one:1", "here", INSTANCE, bytes(16))
    assert pickle.loads(pickle.dumps(without)) == without  # noqa: S301 - our own bytes
