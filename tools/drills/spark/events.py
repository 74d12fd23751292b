"""What Spark's own listener wrote into its event log, as the counts that the Spark drill judges.

Pure but for reading the file. Times are seconds since 1970, as in the log. Called by spark.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holdfast.tools.drills.spark.session import LABEL

_SUBMITTED, _TASK = '{"Event":"SparkListenerStageSubmitted"', '{"Event":"SparkListenerTaskEnd"'
_OK = "Success"


@dataclass(slots=True)
class Ran:
    """What ran under one label."""

    #: stages that were submitted a second time or more often
    stages_again: int = 0
    stages: int = 0
    maps: int = 0
    #: map tasks that ran although the same one had succeeded before
    maps_again: int = 0
    fetch_failures: int = 0
    #: tasks that did not succeed, by Spark's reason
    failed: Counter[str] = field(default_factory=Counter)
    #: when tasks ended, successful or not
    ends: list[float] = field(default_factory=list)

    def longest_pause(self, began: float, ended: float) -> float:
        """The longest time in [began, ended] in which no task ended."""
        moments = [began, *sorted(end for end in self.ends if began < end < ended), ended]
        return max(later - earlier for earlier, later in pairwise(moments))


def read(lines: Iterable[str]) -> dict[str, Ran]:
    """Return what ran, by label, from the lines of an event log. Stages without a label are left out."""
    found: dict[str, Ran] = {}
    labels: dict[int, str] = {}
    done: set[tuple[int, int]] = set()
    for event in _events(lines):
        if event["Event"] == "SparkListenerStageSubmitted":
            label = (event.get("Properties") or {}).get(LABEL)
            if label is None:
                continue
            info = event["Stage Info"]
            ran = found.setdefault(label, Ran())
            labels[info["Stage ID"]] = label
            ran.stages += 1
            ran.stages_again += info["Stage Attempt ID"] > 0
        elif event["Stage ID"] in labels:
            _task(event, found[labels[event["Stage ID"]]], done)
    return found


def _task(event: dict[str, Any], ran: Ran, done: set[tuple[int, int]]) -> None:
    reason, info = event["Task End Reason"]["Reason"], event["Task Info"]
    ran.ends.append(info["Finish Time"] / 1000)
    if reason != _OK:
        ran.failed[reason] += 1
        ran.fetch_failures += reason == "FetchFailed"
    elif event["Task Type"] == "ShuffleMapTask":
        ran.maps += 1
        place = event["Stage ID"], info["Index"]
        ran.maps_again += place in done
        done.add(place)


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The two kinds that matter; a log has much larger ones, which are not decoded."""
    for line in lines:
        if line.startswith((_SUBMITTED, _TASK)):
            event: dict[str, Any] = json.loads(line)
            yield event
