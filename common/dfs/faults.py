"""What the error of a store means for us: is it missing, refused, full, or could waiting help? Pure.

pyarrow and hdfs-native raise OSError and RuntimeError whose only sign is a code in the text, in a fixed form: "AWS
Error ACCESS_DENIED" and "(HTTP status 403)", or the name of Hadoop's exception. It is read here and nowhere else. What
is not known counts as something that may pass: a wrong reading costs the time of the retries and nothing else, except
for MISSING, which store.py believes only after it has found the store's marker.
"""

from __future__ import annotations

import errno
import re
from enum import Enum, unique

from holdfast.common.errors import DfsError
from holdfast.common.statuses import Status


@unique
class Fault(Enum):
    """Why a store did not do what it was asked."""

    MISSING = "missing"
    REFUSED = "refused"
    FULL = "full"
    PASSING = "passing"


_AWS = re.compile(r"AWS Error ([A-Z_0-9]+)(?: \(HTTP status (\d{3})\))?")
_HADOOP = re.compile(r'RPCError\("([\w.$]+)"')

_BY_CODE = {
    "NO_SUCH_KEY": Fault.MISSING,
    "RESOURCE_NOT_FOUND": Fault.MISSING,
    "ACCESS_DENIED": Fault.REFUSED,
    "INVALID_ACCESS_KEY_ID": Fault.REFUSED,
    "INVALID_CLIENT_TOKEN_ID": Fault.REFUSED,
    "INVALID_SIGNATURE": Fault.REFUSED,
    "SIGNATURE_DOES_NOT_MATCH": Fault.REFUSED,
    "MISSING_AUTHENTICATION_TOKEN": Fault.REFUSED,
    "UNRECOGNIZED_CLIENT": Fault.REFUSED,
    "NO_SUCH_BUCKET": Fault.REFUSED,
    "AccessControlException": Fault.REFUSED,
    "AuthorizationException": Fault.REFUSED,
    "FileNotFoundException": Fault.MISSING,
    "DSQuotaExceededException": Fault.FULL,
    "NSQuotaExceededException": Fault.FULL,
}
_BY_ERRNO = {
    errno.ENOENT: Fault.MISSING,
    errno.ENOTDIR: Fault.REFUSED,
    errno.EACCES: Fault.REFUSED,
    errno.EPERM: Fault.REFUSED,
    errno.EROFS: Fault.REFUSED,
    errno.ENAMETOOLONG: Fault.REFUSED,
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
}
#: HTTP statuses from 400 to 499 that a later try may not meet: timeout, conflict, throttled.
_PASSING_HTTP = {408, 409, 425, 429}
_TEXT_MAX = 300


def classify(error: BaseException) -> Fault:
    """Say what kind of fault the error of a store is."""
    if isinstance(error, FileNotFoundError):
        return Fault.MISSING
    if isinstance(error, PermissionError):
        return Fault.REFUSED
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        return _BY_ERRNO[error.errno]
    if found := _HADOOP.search(str(error)):
        return _BY_CODE.get(found[1].rpartition(".")[2].rpartition("$")[2], Fault.PASSING)
    if found := _AWS.search(str(error)):
        status = int(found[2] or 0)
        refused = Fault.REFUSED if 400 <= status < 500 and status not in _PASSING_HTTP else Fault.PASSING
        return _BY_CODE.get(found[1], refused)
    return Fault.PASSING


_ADVICE = {
    Fault.MISSING: "check that the store is the right one and is mounted",
    Fault.REFUSED: "check [dfs] url and the rights of its credentials; nothing was tried again",
    Fault.FULL: "make room in the store, or raise its quota",
    Fault.PASSING: "check that the store runs and can be reached from here",
}
_STATUS = {
    Fault.MISSING: Status.DISK_FAILED,
    Fault.REFUSED: Status.DISK_FAILED,
    Fault.FULL: Status.DISK_FULL,
    Fault.PASSING: Status.UNAVAILABLE,
}


def error_of(store: str, what: str, error: BaseException) -> DfsError:
    """Return the error to raise: which store, what it was asked, why not, and what to do."""
    fault = classify(error)
    text = " ".join(str(error).split()) or type(error).__name__
    text = text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."
    return DfsError(
        f"DFS store {store}: cannot {what}: {text}; {_ADVICE[fault]}",
        status=_STATUS[fault],
        passing=fault is Fault.PASSING,
    )
