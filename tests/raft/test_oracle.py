"""The oracles themselves: what they must object to, and what they must let pass."""

from __future__ import annotations

import pytest

from tests.raft.world import Oracle, Violation


def oracle() -> Oracle:
    """Three nodes. Entries 2 and 3 of term 1; a and b have stored entry 2, a alone entry 3."""
    watch = Oracle(majority=2)
    watch.leader("a", 1, 1, [0])
    for index in (2, 3):
        watch.entry("a", b"x%d" % index, index, 1, 0 if index == 2 else 1)
        watch.hold("a", index, 1)
    watch.hold("b", 2, 1)
    return watch


def commit_under(watch: Oracle, term: int) -> None:
    """A leader of this term puts its entry 4 behind entry 3 of term 1, and a majority stores both."""
    watch.entry("a", b"no-op", 4, term, 1)
    watch.hold("a", 4, term)
    watch.hold("b", 4, term)


def test_a_commit_needs_a_majority() -> None:
    """Nobody may take for committed what one node of three has stored."""
    watch = oracle()
    watch.commit("a", 2, 1, b"x2")
    with pytest.raises(Violation, match="no majority"):
        watch.commit("a", 3, 1, b"x3")


def test_an_entry_commits_those_before_it() -> None:
    """Entry 3 of term 1 is committed with entry 4 of term 4, under term 4."""
    watch = oracle()
    commit_under(watch, 4)
    watch.commit("a", 3, 1, b"x3")
    assert watch.committed[2].under == 1
    assert (watch.committed[3].term, watch.committed[3].under) == (1, 4)
    assert watch.committed_to == 4


def test_copies_made_in_later_terms_do_not_commit() -> None:
    """Figure 8: entry 3 of term 1 sent on in term 4 is not committed by being on a majority; `hold` is not told."""
    watch = oracle()
    watch.entry("b", b"x3", 3, 1, 1)
    with pytest.raises(Violation, match="no majority"):
        watch.commit("a", 3, 1, b"x3")


def test_a_late_leader_of_a_lower_term_owes_nothing_to_a_higher_one() -> None:
    """Entry 3 of term 1 was committed under term 4; a leader of term 3, elected later by a late vote, lacks it."""
    watch = oracle()
    commit_under(watch, 4)
    watch.leader("c", 3, 1, [0, 1, 3])


def test_a_leader_lacks_what_was_committed_under_a_lower_term() -> None:
    """The same leader in term 5, or one in term 3 that lacks what was committed under term 1, is wrong."""
    watch = oracle()
    commit_under(watch, 4)
    with pytest.raises(Violation, match="c leads in term 5 without entry 3 of term 1, committed under term 4"):
        watch.leader("c", 5, 1, [0, 1, 5])
    watch = oracle()
    with pytest.raises(Violation, match="c leads in term 3 without entry 2 of term 1, committed under term 1"):
        watch.leader("c", 3, 1, [0, 3])


def test_a_leader_elected_before_the_commit_lacks_it() -> None:
    """Time does not matter, terms do: what is committed under term 4 must be in a leader of term 5 elected before."""
    watch = oracle()
    watch.leader("c", 5, 1, [0, 1, 5])
    with pytest.raises(Violation, match="c leads in term 5 without entry 4"):
        commit_under(watch, 4)


def test_a_commit_under_a_lower_term_found_later_counts() -> None:
    """Entry 3 was committed under term 4 first; when a majority turns out to have it in term 1, term 3 must have it."""
    watch = oracle()
    commit_under(watch, 4)
    watch.leader("c", 3, 1, [0, 1, 3])
    with pytest.raises(Violation, match="c leads in term 3 without entry 3 of term 1, committed under term 1"):
        watch.hold("b", 3, 1)


def test_a_compacted_log_is_judged_by_what_is_left() -> None:
    """Entries below a leader's first are in its snapshot; those behind must be there."""
    watch = oracle()
    commit_under(watch, 4)
    watch.leader("a", 5, 4, [4, 5])
    with pytest.raises(Violation, match="without entry 4"):
        watch.leader("b", 6, 3, [1, 6])


def test_one_leader_a_term() -> None:
    """Two leaders of one term are wrong whatever their logs hold."""
    watch = oracle()
    with pytest.raises(Violation, match="both lead"):
        watch.leader("b", 1, 1, [0])
