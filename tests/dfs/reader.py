"""Reads a shuffle in a process that never saw it: `python -m tests.dfs.reader ENDPOINTS INSTANCE SHUFFLE BEGIN END`.

Its last line is JSON: digests of what each partition holds, of all maps, and of those from BEGIN up to END.
"""

import hashlib
import json
import sys
from collections import Counter

from holdfast.client import Session
from tests.support.reduce_client import Contents, read

Digests = dict[str, str]


def digests(found: Contents) -> Digests:
    """Number and digest of the records of every partition that has any; equal for equal multisets."""
    reported = {}
    for partition, records in sorted(found.items()):
        digest = hashlib.sha256()
        for (map_id, payload), count in sorted(records.items()):
            digest.update(b"%d %d %d " % (map_id, count, len(payload)) + payload)
        reported[str(partition)] = f"{records.total()} records, {digest.hexdigest()}"
    return reported


def of_maps(found: Contents, maps: range) -> Contents:
    """What of it came from these maps."""
    kept: Contents = {}
    for partition, records in found.items():
        if some := Counter({record: count for record, count in records.items() if record[0] in maps}):
            kept[partition] = some
    return kept


if __name__ == "__main__":
    endpoints, instance, number, *bounds = sys.argv[1:]
    with Session(endpoints, attach=instance) as session:
        shuffle = session.open_reduce_shuffle(int(number))
        whole = read(shuffle, range(shuffle.partitions))
        some = read(shuffle, range(shuffle.partitions), maps=range(*map(int, bounds)))
    sys.stdout.write(json.dumps([digests(whole), digests(some)]) + "\n")
