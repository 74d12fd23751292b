"""For tests of a part of a worker: whatever clients name, the masters have it."""

from collections.abc import Hashable

from holdfast.common.formats.reduce_messages import ReplicaPlace
from holdfast.common.ids import ShuffleKey
from holdfast.worker.server.membership.asking import Asking


class EverythingRegistered(Asking):
    """Asks nobody."""

    def knows(self, shuffle: ShuffleKey) -> bool:
        """Yes."""
        return True

    async def check_replica(self, replica: ReplicaPlace, owner: Hashable) -> None:
        """It is there."""
