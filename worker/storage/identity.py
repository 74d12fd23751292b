"""The two small files of a storage directory: whose it is, and how often its worker has started.

Bytes in docs/internals/disk_format.md. Both are repeated in the index, so that one damaged
copy loses nothing. Pure: bytes in, values out.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.formats.checksum import with_crc, without_crc
from holdfast.common.ids import Incarnation
from holdfast.common.limits import NAME_BYTES_MAX
from holdfast.worker.storage.names import FORMAT

#: magic, version u16, length of cluster id and of worker name u16; worker uid and directory id, 16 bytes each
_IDENTITY = struct.Struct("<4sHHH16s16s")
_IDENTITY_MAGIC = b"HFID"
#: magic, version u16, zero u16, incarnation u32, boot id 16 bytes
_STARTS = struct.Struct("<4sHHI16s")
_STARTS_MAGIC = b"HFST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose a directory is; written once, when it is made."""

    cluster_id: str
    worker_name: str
    #: 16 bytes, the same in all directories of a worker
    worker_uid: bytes
    #: 16 bytes, drawn when the directory was made
    directory_id: bytes

    def encode(self) -> bytes:
        cluster, name = self.cluster_id.encode(), self.worker_name.encode()
        if max(len(cluster), len(name)) > NAME_BYTES_MAX:
            raise ValueError(f"a cluster id or worker name has at most {NAME_BYTES_MAX} bytes")
        head = _IDENTITY.pack(_IDENTITY_MAGIC, FORMAT, len(cluster), len(name), self.worker_uid, self.directory_id)
        return with_crc(head + cluster + name)

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Undo encode. Raises CorruptError; ConfigError for a sound one of another format: nothing in the directory may
        be touched then, or what this release takes for damage would be lost."""
        body = without_crc(data, "the identity file")
        if len(body) < _IDENTITY.size:
            raise CorruptError("the identity file is cut")
        magic, version, cluster, name, worker_uid, directory_id = _IDENTITY.unpack_from(body)
        start = _IDENTITY.size
        if magic == _IDENTITY_MAGIC and version != FORMAT:
            raise ConfigError(
                f"the storage directory has format {version}, of {'a later' if version > FORMAT else 'an earlier'} "
                f"release of Holdfast, and this one reads format {FORMAT}: start a release that reads it, or name an "
                "empty directory in worker.directories (docs/operate/upgrade.md)"
            )
        if magic != _IDENTITY_MAGIC or len(body) != start + cluster + name:
            raise CorruptError("an identity file without its magic number, or of another length than its header has")
        return cls(
            cluster_id=body[start : start + cluster].decode(),
            worker_name=body[start + cluster :].decode(),
            worker_uid=worker_uid,
            directory_id=directory_id,
        )


@dataclass(frozen=True, slots=True)
class Starts:
    """The last start of the worker that this directory knows of."""

    incarnation: Incarnation
    #: 16 bytes: which boot of the machine it was
    boot_id: bytes

    def encode(self) -> bytes:
        return with_crc(_STARTS.pack(_STARTS_MAGIC, FORMAT, 0, self.incarnation, self.boot_id))

    @classmethod
    def decode(cls, data: bytes) -> Starts:
        body = without_crc(data, "the starts file")
        if len(body) != _STARTS.size:
            raise CorruptError("the starts file is cut")
        magic, version, zero, incarnation, boot_id = _STARTS.unpack(body)
        if magic != _STARTS_MAGIC or version != FORMAT or zero:
            raise CorruptError(f"a starts file of version {version} is not known here")
        return cls(Incarnation(incarnation), boot_id)


def parse_boot_id(text: str) -> bytes:
    """The 16 bytes of /proc/sys/kernel/random/boot_id."""
    return uuid.UUID(text.strip()).bytes
