"""Cutting pieces into frames; deciding what may be deleted; greeting."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.messages import PROTOCOL_VERSION, Hello
from holdfast.common.ids import Generation, Instance, RaftIndex, ShuffleId, ShuffleKey, StateId
from holdfast.common.statuses import Status
from holdfast.worker.core.access import check_hello
from holdfast.worker.core.forgetting import BATCH_KEYS_MAX, ForgetVerdict, batches, judge
from holdfast.worker.core.read.cut import Cutter

KEYS = [ShuffleKey(Instance(bytes(16)), ShuffleId(n), Generation(0)) for n in range(5)]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50)), min_size=1), st.lists(st.integers(1, 80), min_size=1)
)
def test_frames_of_any_sizes_put_together_are_the_piece(runs: list[tuple[int, int]], sizes: list[int]) -> None:
    """However a piece is cut, offsets follow one another and the runs join to the same bytes, in order."""
    cutter = Cutter(runs, 3)
    flat: list[tuple[int, int]] = []
    turn = 0
    while not cutter.done:
        wanted = sizes[turn % len(sizes)]
        turn += 1
        before = cutter.taken_bytes
        cut = cutter.cut(wanted)
        assert len(cut) <= 3
        size = sum(length for _, _, length in cut)
        assert 0 < size <= wanted
        assert cutter.taken_bytes == before + size
        flat += [(name, at + byte) for name, at, length in cut for byte in range(length)]
    assert flat == [(name, byte) for name, length in runs for byte in range(length)]


def ask(
    dropped: list[ShuffleKey],
    index: int = 10,
    cluster: str = "c",
    unheard: tuple[ShuffleKey, ...] = (),
    state: int = 7,
) -> ForgetVerdict:
    """Judge an answer about KEYS[:3] asked at index 10 by a worker of cluster c that registered with state 7."""
    return judge(
        asked=KEYS[:3],
        highest_when_asked=RaftIndex(10),
        state=StateId(7),
        cluster_id="c",
        answer_dropped=dropped,
        answer_unheard=unheard,
        answer_cluster_id=cluster,
        answer_index=RaftIndex(index),
        answer_state=StateId(state),
    )


def test_what_the_masters_never_heard_of_is_kept() -> None:
    """However far their log has grown: a restored state knows nothing of later shuffles. What it dropped goes."""
    verdict = ask([KEYS[1]], index=1000, unheard=(KEYS[0],))
    assert verdict.delete == (KEYS[1],)
    assert not verdict.stop
    assert "do not know" in verdict.problem


def test_what_a_current_leader_dropped_is_deleted() -> None:
    """Index equal or higher, same cluster: exactly the dropped keys go."""
    assert ask([KEYS[1]]).delete == (KEYS[1],)
    assert ask([KEYS[1]], index=11) == ask([KEYS[1]])
    assert not ask([KEYS[1]]).problem


def test_an_older_state_deletes_nothing_and_says_so() -> None:
    """A lower index means that the cluster was restored."""
    verdict = ask(KEYS[:3], index=9)
    assert verdict.delete == ()
    assert verdict.stop
    assert "restored" in verdict.problem


def test_a33_another_state_deletes_nothing_and_says_so() -> None:
    """Masters that were restored since this worker registered give its numbers anew: they are not believed until it has
    registered with them, however high their index is."""
    verdict = ask(KEYS[:3], index=1000, state=8)
    assert verdict.delete == ()
    assert verdict.stop
    assert "restored" in verdict.problem


def test_another_cluster_deletes_nothing_and_says_so() -> None:
    """Another cluster's masters know nothing of ours."""
    verdict = ask(KEYS[:3], cluster="d")
    assert verdict.delete == ()
    assert "'d'" in verdict.problem


def test_what_was_not_asked_is_not_deleted() -> None:
    """A key that the answer names and the question did not is left alone."""
    assert ask([KEYS[4], KEYS[0]]).delete == (KEYS[0],)


def test_questions_are_bounded() -> None:
    """All keys are asked, in questions of at most BATCH_KEYS_MAX."""
    keys = KEYS * BATCH_KEYS_MAX
    asked = list(batches(keys))
    assert [key for batch in asked for key in batch] == keys
    assert max(map(len, asked)) == BATCH_KEYS_MAX


def test_a_connection_of_our_cluster_and_version_is_accepted() -> None:
    """Nothing is raised."""
    check_hello(Hello(cluster_id="c"), "c")


@pytest.mark.parametrize(
    ("hello", "status"),
    [
        (Hello(cluster_id="d"), Status.WRONG_CLUSTER),
        (Hello(cluster_id=""), Status.WRONG_CLUSTER),
        (Hello(cluster_id="c", version=PROTOCOL_VERSION + 1), Status.BAD_VERSION),
    ],
)
def test_others_are_refused_by_status(hello: Hello, status: Status) -> None:
    """Another cluster or version is told so."""
    with pytest.raises(ProtocolError) as caught:
        check_hello(hello, "c")
    assert caught.value.status == status
