"""What is done with every directory and data file at start: two tables of named cases, walked whole by a test.

Pure: facts in, a decision out. A combination that is not in the table cannot happen; meeting one is an error that names
the facts. opening.py gathers facts and carries decisions out. The same tables stand in docs/disk_format.md.

Two questions do not arise for map files. Which boot wrote the bytes: a sealed name is given only after the bytes are
synced, and unsealed files are never read, at whatever level they were acknowledged, since their writer starts again
when its connection ends. And which incarnation: a later one never goes on with an earlier one's file.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Name(Enum):
    """Under which name a map file is on the disk."""

    MISSING = auto()
    OPEN = auto()
    SEALED = auto()
    FAILED = auto()


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
    """All that decides on one map file."""

    name: Name
    indexed: bool
    length: Length
    footer: Footer


class Decision(Enum):
    """What to do with one map file."""

    KEEP = auto()  #: all is well
    ADOPT = auto()  #: sealed but not answered, or the index was rebuilt: record it from its footer
    CUT_TAIL = auto()  #: bytes behind the footer that nothing refers to: cut them off
    FINISH = auto()  #: recorded as sealed, whole, but still under its old name: rename it
    KEEP_DAMAGED = auto()  #: shorter than recorded: serve the regions that are whole, refuse the others by name
    LOST = auto()  #: recorded but gone: keep the record, so that reads say so
    QUARANTINE = auto()  #: neither record nor footer says what it is: put it aside for people
    DELETE_LATER = auto()  #: unsealed, never read again: delete once the masters have answered
    KEEP_FAILED = auto()  #: given up: answer FAILED_COPY until its shuffle is forgotten
    UNRECORD = auto()  #: given up after the record may have been written: take the record out, then KEEP_FAILED


_N, _L, _F = Name, Length, Footer

#: One line a case. A letter names it in reports and in docs/disk_format.md.
FILE_TABLE: dict[Facts, tuple[str, Decision]] = {
    Facts(_N.SEALED, True, _L.EQUAL, _F.UNREAD): ("A", Decision.KEEP),
    Facts(_N.SEALED, True, _L.LONGER, _F.RIGHT): ("B", Decision.CUT_TAIL),
    Facts(_N.SEALED, True, _L.LONGER, _F.WRONG): ("C", Decision.KEEP_DAMAGED),
    Facts(_N.SEALED, True, _L.SHORTER, _F.UNREAD): ("D", Decision.KEEP_DAMAGED),
    Facts(_N.SEALED, False, _L.UNKNOWN, _F.RIGHT): ("E", Decision.ADOPT),
    Facts(_N.SEALED, False, _L.UNKNOWN, _F.WRONG): ("F", Decision.QUARANTINE),
    Facts(_N.OPEN, False, _L.UNKNOWN, _F.UNREAD): ("G", Decision.DELETE_LATER),
    Facts(_N.OPEN, True, _L.EQUAL, _F.RIGHT): ("H", Decision.FINISH),
    Facts(_N.OPEN, True, _L.EQUAL, _F.WRONG): ("I", Decision.LOST),
    Facts(_N.OPEN, True, _L.SHORTER, _F.UNREAD): ("J", Decision.LOST),
    Facts(_N.OPEN, True, _L.LONGER, _F.RIGHT): ("K", Decision.LOST),
    Facts(_N.OPEN, True, _L.LONGER, _F.WRONG): ("L", Decision.LOST),
    Facts(_N.MISSING, True, _L.UNKNOWN, _F.UNREAD): ("M", Decision.LOST),
    Facts(_N.FAILED, False, _L.UNKNOWN, _F.UNREAD): ("N", Decision.KEEP_FAILED),
    Facts(_N.FAILED, True, _L.UNKNOWN, _F.UNREAD): ("O", Decision.UNRECORD),
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

    #: holds nothing but what every file system may have at its root
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
