"""The tables of recovery.py, walked whole."""

import itertools

import pytest

from holdfast.worker.storage.recovery.recovery import (
    FILE_TABLE,
    Decision,
    DirectoryFacts,
    Facts,
    Footer,
    Length,
    Name,
    Opening,
    Part,
    decide,
    decide_opening,
)

ALL_FILES = [Facts(*row) for row in itertools.product(Name, Length, Footer)]
ALL_DIRECTORIES = [DirectoryFacts(*row) for row in itertools.product((False, True), Part, Part, (None, False, True))]


def possible(facts: Facts) -> bool:
    """Whether gathering can give these facts: a file that has its sealed name is compared with its record, and its
    footer read, only where that can matter; one that has not is recorded, or nobody asks."""
    if facts.name is not Name.SEALED:
        return facts == Facts(facts.name)
    wanted = facts.length in (Length.LONGER, Length.UNKNOWN)
    return wanted == (facts.footer is not Footer.UNREAD)


@pytest.mark.parametrize("facts", ALL_FILES, ids=lambda facts: "-".join(str(getattr(f, "name", f)) for f in facts))
def test_every_combination_has_a_row_or_cannot_be(facts):
    """Exactly the combinations that can be met have a row; any other is an error that names the facts."""
    if possible(facts):
        decide(facts)
    else:
        with pytest.raises(LookupError, match="no such case"):
            decide(facts)


def test_cases_have_names_of_their_own():
    """A case is called by one letter in reports and documents, and every decision is taken by some case."""
    letters = [letter for letter, _ in FILE_TABLE.values()]
    assert letters == sorted(set(letters))
    assert {decision for _, decision in FILE_TABLE.values()} == set(Decision)


def test_what_is_recorded_is_never_forgotten():
    """Only a copy that was given up loses its record; only what has neither record nor footer is put aside."""
    for facts, (_, decision) in FILE_TABLE.items():
        assert (decision is Decision.UNRECORD) == (facts.name is Name.FAILED)
        assert (decision is Decision.REMOVE) == (facts.name is Name.GIVEN_UP)
        if decision in (Decision.QUARANTINE, Decision.ADOPT):
            assert (facts.name, facts.length) == (Name.SEALED, Length.UNKNOWN)
            assert (decision is Decision.QUARANTINE) == (facts.footer is Footer.WRONG)


@pytest.mark.parametrize("facts", ALL_DIRECTORIES, ids=str)
def test_every_directory_is_opened_refused_or_cannot_be(facts):
    """A directory is only made where nothing is, and only used where something readable says that it is ours."""
    try:
        opening = decide_opening(facts)
    except LookupError:
        return
    if opening is Opening.CREATE:
        assert facts.empty
    elif opening in (Opening.REFUSE_OTHER, Opening.REFUSE_UNKNOWN):
        assert not facts.ours
    else:
        assert facts.ours
        assert Part.GOOD in (facts.identity_part, facts.index_part)
