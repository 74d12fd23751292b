"""How much the replicated state holds, with the reason of each bound. Past it a command is refused, never cut short."""

from __future__ import annotations

from holdfast.common.limits import COMMAND_PART_BYTES, COMMAND_PARTS_MAX, GIB, MIB

#: Worker numbers that were ever given. A record is about 1 KiB.
WORKERS_MAX = 50_000
DIRECTORIES_MAX = 64
APPLICATIONS_MAX = 10_000
LEASES_PER_APPLICATION_MAX = 1_000
#: Shuffle generations alive at once; a record without arrays is about 500 bytes.
SHUFFLES_MAX = 200_000
#: Of one application: they are dropped by one command, which may not hold up the log for more than a few milliseconds.
SHUFFLES_PER_APPLICATION_MAX = 20_000
#: Runs of shuffle ids with equal highest generation, remembered so that none is used twice: of all and of one
#: application. Ids that ascend without gaps are one run, however many.
RUNS_MAX = 500_000
RUNS_PER_APPLICATION_MAX = 50_000
#: Instances that were dropped and must not come back; the oldest are forgotten first (instances are random).
GONE_MAX = 20_000
#: Assignments, moves, winners and manifests of all shuffles together: what a master holds in memory and in snapshots.
ARRAY_BYTES_MAX = 1 * GIB
#: Epochs that one command makes: apply takes one to three microseconds for each, and may not hold up the log for long.
MOVES_PER_COMMAND_MAX = 8_192
#: Parts of arrays whose final command has not come yet.
UPLOAD_BYTES_MAX = 256 * MIB
UPLOADS_MAX = 64
#: Parts older than this are dropped by the next part that comes.
UPLOAD_LIFE_MS = 120_000
LEASE_MS_MAX = 30 * 24 * 3600 * 1000
DETAIL_CHARS_MAX = 500

#: Answered calls remembered per client: more than a client may have under way at once (64).
CALLS_PER_CLIENT_MAX = 128
#: Answered calls in all; then a client forgets its own oldest, and new clients get BUSY.
CALLS_MAX = 131_072
CLIENTS_MAX = 16_384
#: A client is forgotten when it made no command for this long; no call is retried that long.
CLIENT_LIFE_MS = 15 * 60 * 1000

assert COMMAND_PART_BYTES * COMMAND_PARTS_MAX <= UPLOAD_BYTES_MAX, "the largest array can be uploaded"
