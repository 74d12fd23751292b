"""What is done with every directory and sealed file at start: two tables of named cases, walked whole by a test.

Pure: facts in, a decision out. A combination that is not in the table cannot happen; meeting one is an error that names
the facts. opening.py and reconcile.py gather facts and carry decisions out. The same tables stand in
docs/internals/disk_format.md.

Files of maps and of partitions are one to the table. Which boot wrote the bytes is no question: a sealed name is given
only after the bytes are synced. Unsealed files are in no table: of maps they are never read, of partitions they are
what reduce_recovery.py finds.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Name(Enum):
    """Under which name a sealed file is on the disk."""

    SEALED = auto()
    OPEN = auto()  #: recorded, and whole under the name that it had before
    FAILED = auto()  #: recorded, not there under its sealed name, and given up
    GIVEN_UP = auto()  #: not recorded, and an epoch in it was given up
    MISSING = auto()  #: recorded, and neither


class Length(Enum):
    """How long the file is, beside what its index record says."""

    UNKNOWN = auto()  #: no file, or no record to compare with
    EQUAL = auto()
    SHORTER = auto()
    LONGER = auto()


class Footer(Enum):
    """What the footer says; read only where it decides. Of a file that is LONGER, the one at the recorded end."""

    UNREAD = auto()
    RIGHT = auto()  #: whole, and of this very file
    WRONG = auto()


class Facts(NamedTuple):
    """All that decides on one file that has a sealed name or a record."""

    name: Name
    length: Length = Length.UNKNOWN
    footer: Footer = Footer.UNREAD


class Decision(Enum):
    """What to do with one file."""

    KEEP = auto()  #: all is well
    ADOPT = auto()  #: sealed but not answered, or the index was rebuilt: record it from its footer
    CUT_TAIL = auto()  #: bytes behind the footer that nothing refers to: cut them off
    FINISH = auto()  #: recorded as sealed, whole, but still under its old name: rename it
    KEEP_DAMAGED = auto()  #: shorter than recorded: serve what is whole, refuse the rest by name
    LOST = auto()  #: recorded but gone: keep the record, so that reads say so
    QUARANTINE = auto()  #: neither record nor footer says what it is: put it aside for people
    UNRECORD = auto()  #: given up after the record may have been written: take the record out
    REMOVE = auto()  #: its seal recorded nothing, so nothing was answered of it: what is good is in the log, too


_N, _L, _F = Name, Length, Footer

#: One line a case. A letter names it in reports and in docs/internals/disk_format.md.
FILE_TABLE: dict[Facts, tuple[str, Decision]] = {
    Facts(_N.SEALED, _L.EQUAL): ("A", Decision.KEEP),
    Facts(_N.SEALED, _L.LONGER, _F.RIGHT): ("B", Decision.CUT_TAIL),
    Facts(_N.SEALED, _L.LONGER, _F.WRONG): ("C", Decision.KEEP_DAMAGED),
    Facts(_N.SEALED, _L.SHORTER): ("D", Decision.KEEP_DAMAGED),
    Facts(_N.SEALED, _L.UNKNOWN, _F.RIGHT): ("E", Decision.ADOPT),
    Facts(_N.SEALED, _L.UNKNOWN, _F.WRONG): ("F", Decision.QUARANTINE),
    Facts(_N.OPEN): ("G", Decision.FINISH),
    Facts(_N.MISSING): ("H", Decision.LOST),
    Facts(_N.FAILED): ("I", Decision.UNRECORD),
    Facts(_N.GIVEN_UP): ("J", Decision.REMOVE),
}


def decide(facts: Facts) -> tuple[str, Decision]:
    """Return the name of the case and the decision; raises LookupError for a combination that cannot be."""
    found = FILE_TABLE.get(facts)
    if found is None:
        raise LookupError(f"no such case: {facts}")
    return found


class Part(Enum):
    """State of the identity file or the index."""

    ABSENT = auto()
    GOOD = auto()
    DAMAGED = auto()


class DirectoryFacts(NamedTuple):
    """All that decides on a directory."""

    #: holds nothing but what every file system may have at its root, and what says nothing without an identity
    empty: bool
    identity_part: Part
    index_part: Part
    #: identity (of file or index) names this cluster and this worker; None if neither can be read
    ours: bool | None


class Opening(Enum):
    """How a directory is opened."""

    CREATE = auto()  #: new
    OPEN = auto()
    REBUILD = auto()  #: the index is put into quarantine and made again from the footers
    RESTORE = auto()  #: the identity is written again from the index
    REFUSE_OTHER = auto()  #: it belongs to another cluster or worker
    REFUSE_UNKNOWN = auto()  #: it holds something, and nothing says that it is ours


def decide_opening(facts: DirectoryFacts) -> Opening:
    """Return how to open a directory; raises LookupError for a combination that cannot be."""
    match facts:
        case DirectoryFacts(empty=True, identity_part=Part.ABSENT, index_part=Part.ABSENT, ours=None):
            return Opening.CREATE
        case DirectoryFacts(empty=True) | DirectoryFacts(identity_part=Part.GOOD, ours=None):
            raise LookupError(f"no such case: {facts}")
        case DirectoryFacts(ours=False, identity_part=Part.GOOD) | DirectoryFacts(ours=False, index_part=Part.GOOD):
            return Opening.REFUSE_OTHER
        case DirectoryFacts(identity_part=Part.GOOD, index_part=Part.GOOD, ours=True):
            return Opening.OPEN
        case DirectoryFacts(identity_part=Part.GOOD, ours=True):
            return Opening.REBUILD
        case DirectoryFacts(index_part=Part.GOOD, ours=True):
            return Opening.RESTORE
        case DirectoryFacts(identity_part=Part.ABSENT | Part.DAMAGED, ours=None):
            return Opening.REFUSE_UNKNOWN
        case _:
            raise LookupError(f"no such case: {facts}")
