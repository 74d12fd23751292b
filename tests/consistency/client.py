"""A client process of the harness: applications that live long, applications that are dropped, and readers of others'.

    python -m tests.consistency.client DIRECTORY WHO SEED ENDPOINTS [DETOUR PORTS]

It goes on until DIRECTORY/quiet is there; then it ends what it is at, reads everything again that it has and waits for
DIRECTORY/end. It may be stopped and killed at any moment: DIRECTORY/WHO.history says what was acknowledged.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdfast.client import Session
from holdfast.client import generation as one_generation
from holdfast.common.errors import HoldfastError
from holdfast.common.net import detour
from tests.consistency.contents import Place, shape_of
from tests.consistency.generation import (
    TRIES_MAX,
    AnyShuffle,
    GaveUpError,
    Generation,
    is_passing,
    manifest_of,
    read_and_judge,
)
from tests.consistency.history import History, Line
from tests.consistency.others import Others

#: Silence after which the masters drop an application: longer than any fault, short enough to see it happen.
LEASE_SECONDS = 30.0
#: What an operation may take, whatever is done to the servers meanwhile; longer is a hang.
OPERATION_SECONDS_MAX = 240.0
#: Committed generations that an application keeps to be read again.
_KEPT_MAX = 6
#: How long a reader waits for a commit that may never come; readers' own bound is a minute.
COMMIT_WAIT_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_PAUSE_SECONDS = 0.5


class Client:
    """What the threads of the process share."""

    def __init__(self, directory: Path, who: str, seed: int, endpoints: str) -> None:
        self.directory = directory
        self.who = who
        self.seed = seed
        self.endpoints = endpoints
        self.history = History(directory / f"{who}.history", who)
        self.quiet = threading.Event()
        self.end = threading.Event()
        own = hashlib.blake2b(who.encode(), digest_size=4).digest()
        self._attempts = itertools.count((int.from_bytes(own) << 24) + 1)

    def chance(self, what: str) -> random.Random:
        """The generator of one thread."""
        return random.Random(f"{self.seed}/{self.who}/{what}")

    def next_attempt(self) -> int:
        """A number that no other attempt has, of this process or of another."""
        return next(self._attempts)

    def watch(self) -> None:
        """Look for the flags, and for what hangs; a thread."""
        reported: set[int] = set()
        while not self.end.wait(_LOOK_SECONDS):
            for flag in (self.quiet, self.end):
                name = "quiet" if flag is self.quiet else "end"
                if (self.directory / name).exists():
                    flag.set()
            now = time.monotonic()
            for number, (began, line) in list(self.history.open.items()):
                if now - began > OPERATION_SECONDS_MAX and number not in reported:
                    reported.add(number)
                    self.history.say(say="hangs", operation=line, stacks=_stacks())

    @contextmanager
    def session(self, app: str, instance: str | None = None) -> Iterator[Session]:
        """A session, registered or attached, closed at the end. Raises what it is told."""
        names = {"app": app, "attach": instance is not None}
        session = self._open(app, instance, names)
        try:
            yield session
        finally:
            with self.history.operation("detach" if instance else "drop", **names):
                session.close()

    def _open(self, app: str, instance: str | None, names: Line) -> Session:
        for tries in itertools.count(1):
            try:
                with self.history.operation("open", **names) as one:
                    session = Session(
                        self.endpoints,
                        app=app,
                        attach=False if instance is None else instance,
                        lease_seconds=LEASE_SECONDS,
                    )
                    one.ends("ok", instance=session.instance.hex())
                    return session
            except HoldfastError as error:
                if not is_passing(error) or tries >= TRIES_MAX:
                    raise
        raise AssertionError("counting does not end")


class Application:
    """Shuffles of one application, one after the other, in one thread; some are kept."""

    def __init__(self, client: Client, session: Session, app: str, number: int, stop: threading.Event) -> None:
        self._client = client
        self._session = session
        self._app = app
        self._numbers = itertools.count(number, 2)
        self._chance = client.chance(f"{app}/{number}")
        self._stop = stop
        self._kept: list[Generation] = []

    def step(self) -> None:
        """One more shuffle, then look at what is kept. Raises HoldfastError where the application is told off."""
        self._shuffle(next(self._numbers))
        if self._kept and self._chance.random() < 0.4:
            self._again(self._chance.choice(self._kept).read, "again")
        while len(self._kept) > _KEPT_MAX:
            self._again(partial(self._forget, self._kept.pop(self._chance.randrange(len(self._kept)))))

    def _shuffle(self, number: int) -> None:
        for generation in range(3):
            place = Place(self._client.seed, self._app, number, generation)
            one = Generation(
                self._client.history, self._session, place, self._chance, self._stop, self._client.next_attempt
            )
            if self._again(one.run) and not _lost(one.shuffle):
                if self._chance.random() < 0.6:
                    self._kept.append(one)
                else:
                    self._again(partial(self._forget, one))
                return
            if self._stop.is_set():
                return

    def _again(self, work: Callable[..., object], *values: str) -> object:
        """The same with an answer."""
        try:
            return work(*values)
        except (HoldfastError, GaveUpError):
            self._stop.wait(_PAUSE_SECONDS)
            return None

    def _forget(self, one: Generation) -> None:
        place = one.place
        with self._client.history.operation(
            "forget", app=place.app, shuffle=place.shuffle, generation=place.generation
        ):
            one.shuffle.unregister()

    def read_all(self) -> None:
        """The last word: everything that is kept, read whole."""
        for one in self._kept:
            partitions = list(range(shape_of(one.place).partitions))
            read = partial(read_and_judge, self._client.history, one.shuffle, one.place, "final", partitions)
            self._again(read)


def _lost(shuffle: AnyShuffle) -> bool:
    """Whether the masters say that an epoch of it is lost, so that its maps run again."""
    try:
        return any(epoch[2] for epoch in manifest_of(shuffle).get("epochs", []))
    except HoldfastError:
        return True


# The threads.


def live_long(client: Client) -> None:
    """One application until the end, by two threads."""
    app = f"{client.who}-long"
    with client.session(app) as session:
        client.history.say(say="lives", app=app)
        both = [Application(client, session, app, number, threading.Event()) for number in range(2)]

        def go_on(one: Application) -> None:
            while not client.quiet.is_set():
                one.step()
            one.read_all()

        threads = [threading.Thread(target=_guarded, args=(client, "long", go_on, one)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.history.say(say="has read all")
        client.end.wait()


def take_over(client: Client) -> None:
    """Be the driver of the application of the client before this one, which was killed: read what it has committed."""
    name, _, number = client.who.partition(".")
    chance = client.chance("successor")
    if number == "0" or chance.random() < 0.4:
        return
    before = f"{name}.{int(number) - 1}"
    app, others = f"{before}-long", Others(client.directory)
    others.look()
    if app not in others.instances:
        return

    def committed() -> list[Line]:
        others.look()
        return [line for line in others.committed() if line["app"] == app]

    with client.session(app, others.instances[app]) as session:
        client.history.say(say="takes over", app=app, of=before)
        while not client.quiet.wait(chance.uniform(0.5, 3.0)):
            if found := committed():
                _try(client.quiet, partial(read_attached, client, session, chance.choice(found), "successor"))
        for line in committed():
            _try(client.quiet, partial(read_attached, client, session, line, "final"))
        client.history.say(say="has read all of", app=app)
        client.end.wait()


def _try(stop: threading.Event, work: Callable[[], object]) -> None:
    """What the history has, the loop goes on from."""
    try:
        work()
    except (HoldfastError, GaveUpError):
        stop.wait(_PAUSE_SECONDS)


def live_short(client: Client) -> None:
    """Applications that are dropped: in the middle of a write, of a commit, or of a read; one after the other."""
    chance = client.chance("short")
    for number in itertools.count():
        if client.quiet.is_set():
            return
        app = f"{client.who}-short{number}"
        stop = threading.Event()
        try:
            with client.session(app) as session:
                one = Application(client, session, app, 0, stop)
                thread = threading.Thread(target=_guarded, args=(client, "short", Application.step, one))
                thread.start()
                thread.join(chance.choice((0.2, 0.8, 2.0, 10.0)))
                client.history.say(say="dropping", app=app)
                if chance.random() < 0.5:
                    stop.set()
            stop.set()
            thread.join()
        except HoldfastError:
            client.quiet.wait(_PAUSE_SECONDS)


def visit(client: Client) -> None:
    """Read what other processes have committed, through sessions that attach to their applications."""
    chance, others = client.chance("guest"), Others(client.directory)
    while not client.quiet.wait(chance.uniform(0.5, 2.0)):
        others.look()
        committed = [each for each in others.committed() if each["who"] != client.who]
        if committed:
            _try(client.quiet, partial(read_as_guest, client, chance.choice(committed[-8:]), "guest"))


def meddle(client: Client) -> None:
    """Commit what other processes are about to commit, with a map of one's own: a rival driver."""
    chance, others = client.chance("rival"), Others(client.directory)
    while not client.quiet.wait(chance.uniform(0.1, 0.4)):
        others.look()
        offers = [line for line in others.offers if line["who"] != client.who and line["app"] in others.instances]
        if offers and chance.random() < 0.3:
            line = offers[-1]
            _try(client.quiet, partial(_meddle_with, client, chance, line, others.instances[line["app"]]))


def _meddle_with(client: Client, chance: random.Random, line: Line, instance: str) -> None:
    place = Place(client.seed, line["app"], line["shuffle"], line["generation"])
    with client.session(place.app, instance) as session:
        one = Generation(client.history, session, place, chance, threading.Event(), client.next_attempt)
        one.meddle(line["statuses"])


def read_as_guest(client: Client, line: Line, when: str) -> None:
    """Attach, read all of it, and detach. Raises what a reader is told."""
    place = Place(client.seed, line["app"], line["shuffle"], line["generation"])
    with client.session(place.app, line["instance"]) as session:
        read_attached(client, session, line, when)


def read_attached(client: Client, session: Session, line: Line, when: str) -> None:
    """Read all of what another process has committed. Raises what a reader is told."""
    place = Place(client.seed, line["app"], line["shuffle"], line["generation"])
    shape = shape_of(place)
    names = {"app": place.app, "shuffle": place.shuffle, "generation": place.generation}
    with client.history.operation("find", **names, when=when):
        find = session.open_reduce_shuffle if shape.reduce else session.open_shuffle
        shuffle: AnyShuffle = find(place.shuffle, place.generation)
    read_and_judge(client.history, shuffle, place, when, list(range(shape.partitions)))


def _guarded(client: Client, what: str, work: Callable[..., object], *values: object) -> None:
    """A thread that ends with anything but what clients are told is a defect of the product or of this."""
    try:
        work(*values)
    except HoldfastError as error:
        client.history.say(say="ends", thread=what, error=type(error).__name__, text=str(error)[:600])
    except Exception:  # noqa: BLE001 - whatever it is, the history must have it
        client.history.say(say="bug", thread=what, text=traceback.format_exc()[-3000:])


def _stacks() -> str:
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}: {' <- '.join(each.name for each in reversed(traceback.extract_stack(frames[thread.ident])))}"
        for thread in threading.enumerate()
        if thread.ident in frames
    )[:8000]


def main(arguments: list[str]) -> None:
    """Be a client until told to end."""
    directory, who, seed, endpoints, *way = arguments
    if way:
        detour.take(way[0], [int(port) for port in way[1].split(",")])
    one_generation.COMMIT_WAIT_SECONDS = COMMIT_WAIT_SECONDS
    client = Client(Path(directory), who, int(seed), endpoints)
    client.history.say(say="begins", pid=os.getpid())
    threads = [
        threading.Thread(target=_guarded, args=(client, work.__name__, work, client), daemon=True)
        for work in (live_long, live_short, visit, meddle, take_over)
    ]
    watching = threading.Thread(target=client.watch, daemon=True)
    for thread in (watching, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    client.history.say(say="ends well")


if __name__ == "__main__":
    main(sys.argv[1:])
