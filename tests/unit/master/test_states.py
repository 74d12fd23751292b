"""The id of the masters' state: who draws it, and what it tells apart after a restore."""

from holdfast.common.ids import StateId
from holdfast.common.statuses import Status
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.apply import apply
from holdfast.master.core.state.records import Answer
from holdfast.master.core.state.state import State
from holdfast.master.state_machine import snapshot
from tests.unit.master.build import application, key, reduce

A, B = StateId(0xA), StateId(0xB)


class Log:
    """A state and the place in the log that comes next."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()

    def apply(self, body: cmd.Body) -> Answer:
        """Apply one command at the next place."""
        return apply(self.state, self.state.index + 1, 1, cmd.Command(body))

    def restored(self) -> "Log":
        """The same from a backup of now, named anew."""
        again = Log(State(snapshot.decode(snapshot.encode(self.state.capture()))))
        again.apply(cmd.BeginState(B, after=again.state.state_index))
        return again


def begun() -> Log:
    """A state with a name and an application."""
    log = Log()
    assert log.apply(cmd.BeginState(A, after=0)).ok
    log.apply(application())
    return log


def test_a33_the_first_name_counts() -> None:
    """Of two leaders that name one state the first one does; 0 names nothing."""
    log = begun()
    log.apply(cmd.BeginState(B, after=0))
    assert (log.state.state_id, log.state.state_index) == (A, 1)
    assert log.apply(cmd.BeginState(StateId(0), after=1)).status == Status.BAD_REQUEST
    log.apply(cmd.BeginState(B, after=1))
    assert log.state.state_id == B


def test_a33_what_a_restore_forgot_is_neither_there_nor_dropped() -> None:
    """A shuffle that was registered again under its number is found by its own state and by those who name none; the
    forgotten one is unheard, whatever happens to the other, and cannot drop it."""
    log = begun()
    log.apply(reduce(key(1)))
    again = log.restored()
    log.apply(reduce(key(2)))
    again.apply(reduce(key(2)))
    old, new = key(2)._replace(state=A), key(2)._replace(state=B)
    assert log.state.shuffle(old) is not None
    assert again.state.shuffle(old) is None
    assert again.state.shuffle(key(2)) is again.state.shuffle(new) is not None
    assert again.state.shuffle(key(1)._replace(state=A)) is not None, "what the backup knows keeps its state"
    assert again.apply(cmd.Unregister(old)) == Answer(value=0)
    assert again.state.shuffle(new) is not None
    assert again.apply(cmd.Unregister(new)).value == 1
    assert again.state.dropped(new)
    assert not again.state.dropped(old)
    assert again.apply(cmd.Unregister(key(1)._replace(state=A))).value == 1
    assert again.state.dropped(key(1)._replace(state=A))
    assert again.state.check() == []


def test_a33_a_generation_found_open_by_a_restore_can_be_followed() -> None:
    """It may be final at the workers, by a commit that was forgotten: the next one opens without a word of lost data;
    of this state's own it does not."""
    log = begun()
    log.apply(reduce(key(1)))
    assert log.apply(reduce(key(1, 1))).status == Status.GENERATION_CLOSED
    again = log.restored()
    assert again.apply(reduce(key(1, 1))).ok
    assert again.apply(reduce(key(1, 2))).status == Status.GENERATION_CLOSED
    assert again.state.check() == []
