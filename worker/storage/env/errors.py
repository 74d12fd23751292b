"""What an error of a disk says: whether it may be tried again."""

from __future__ import annotations

import errno

#: No descriptors: then nothing was tried at all.
_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))
_SHORTAGES = _DESCRIPTORS | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}


def is_shortage(error: OSError) -> bool:
    """Whether something failed for want of room, descriptors or memory: that says nothing against the disk, and may go
    well another time. Of a sync it is a failure like any other, see never_again."""
    return error.errno in _SHORTAGES


def never_again(error: OSError, what: str = "cannot be synced") -> OSError:
    """What failed for want of room and cannot be tried again all the same, such as a sync: the next one would be called
    good. Without descriptors it was not tried."""
    return OSError(errno.EIO, f"{what}: {error.strerror}") if was_tried(error) else error


def was_tried(error: Exception) -> bool:
    """Whether something was done that failed: nothing was that had no descriptor."""
    return not isinstance(error, OSError) or error.errno not in _DESCRIPTORS
