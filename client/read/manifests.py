"""What was committed, as readers take it: of MAP partitions and of REDUCE partitions. Called by the shuffles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.client.core.read.read_book import Sight
from holdfast.common.formats.layouts import MapWinners
from holdfast.common.formats.reduce_layouts import EpochResult, ReduceManifest, ReduceWinners
from holdfast.common.ids import WorkerId


@dataclass(frozen=True)
class AnyManifest:
    """What was committed, and where the workers were at that time."""

    winners_array: bytes
    #: what became of every epoch; empty of MAP partitions
    manifest_array: bytes
    addresses: Mapping[WorkerId, str]
    #: what the masters said of these workers then
    sights: Mapping[WorkerId, Sight] = field(default_factory=dict)


class Manifest(AnyManifest):
    """The winner of every map of a shuffle of MAP partitions."""

    @cached_property
    def winners(self) -> MapWinners:
        """The winners, decoded; raises ProtocolError."""
        return MapWinners.decode(self.winners_array)


class PushManifest(AnyManifest):
    """The winner of every map, and what became of every epoch."""

    @cached_property
    def winners(self) -> ReduceWinners:
        """The winners, decoded; raises ProtocolError."""
        return ReduceWinners.decode(self.winners_array)

    @cached_property
    def epochs(self) -> ReduceManifest:
        """Every epoch, decoded; raises ProtocolError."""
        return ReduceManifest.decode(self.manifest_array)

    @cached_property
    def lost(self) -> tuple[EpochResult, ...]:
        """The epochs that could not be sealed anywhere."""
        return tuple(epoch for epoch in self.epochs.epochs if epoch.lost)
