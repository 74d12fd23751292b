"""The refusals of the storage that carry more than a status."""

from __future__ import annotations

from holdfast.common.errors import DataLostError, HoldfastError, RerouteError
from holdfast.common.formats.messages import MapSealed
from holdfast.common.statuses import Status


class SealedError(RerouteError):
    """The file is sealed; `sealed` is the answer that its seal was given."""

    status = Status.SEALED

    def __init__(self, message: str, sealed: MapSealed) -> None:
        super().__init__(message)
        self.sealed = sealed


class UnreadableError(RerouteError):
    """A sealed file is there and cannot be read now; `path` and `cause` say which, and what the kernel said."""

    status = Status.DISK_FAILED

    def __init__(self, message: str, path: str, cause: OSError) -> None:
        super().__init__(message)
        self.path = path
        self.cause = cause


def failed_copy(what: object, why: str) -> RerouteError:
    """This copy is given up for good; another epoch is the way on."""
    return RerouteError(f"{what}: {why}; this copy has failed", status=Status.FAILED_COPY)


def not_sealed(what: object) -> RerouteError:
    """The file is there, but was never sealed: write it again."""
    return RerouteError(f"{what} was never sealed: open it and write it again", status=Status.NOT_SEALED)


def unreadable(what: object, path: str, error: OSError) -> HoldfastError:
    """A sealed file cannot be read: lost if it is not there; else (no descriptors are left, the disk fails) nobody can
    tell, and a later try may succeed."""
    why = f"{what}: {path} cannot be read: {error.strerror}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return DataLostError(why)
    return UnreadableError(why, path, error)


def unknown_file(what: object) -> RerouteError:
    """Nothing is known of the file here."""
    return RerouteError(f"{what} is not here", status=Status.UNKNOWN_FILE)
