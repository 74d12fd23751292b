"""Every bound of the formats, units in the names, relations asserted at import with their reason.

What an operator may change lives in config/config.py; what two processes must agree on lives here.
Made from common/wire.toml by `python -m tests.write_tables`; change it there.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

#: A frame's meta section: the longest is a stream of 40,000 files at 16 bytes.
FRAME_META_BYTES_MAX = 1 * MIB
#: A frame's body. Merged frames are 256 KiB to 4 MiB; a lone large batch may fill the rest.
FRAME_BODY_BYTES_MAX = 16 * MIB
#: What a worker sends per data frame when it serves a read.
READ_FRAME_BYTES = 1 * MIB
#: One batch, header included. A larger record is sent as several batches flagged MORE.
BATCH_BYTES_MAX = FRAME_BODY_BYTES_MAX
#: Runs (partition, length) in one data frame.
FRAME_RUNS_MAX = 65_535
#: Files in one STREAM_OPEN; a reader opens more streams beyond.
STREAM_FILES_MAX = 32_768
#: Batches in one push: entries of 18 bytes in a frame's meta.
PUSH_BATCHES_MAX = 32_768
#: Epochs in one seal: entries of 8 bytes asked, 34 answered; a leader sends more seals beyond.
SEAL_EPOCHS_MAX = 16_384
#: Epochs in one PUSH_SETTLE: entries of 8 bytes asked, up to four of 12 answered; a client sends more beyond.
SETTLE_EPOCHS_MAX = 16_384
#: Epochs that are copied to a worker together: entries of 16 bytes. They make one file.
RESTORE_EPOCHS_MAX = 4_096
#: Failed epochs in one Revive; a client that has more asks again.
REVIVE_EPOCHS_MAX = 65_536
#: A partition file's unit of fetch; a chunk holds whole batches, so it is longer by at most one.
CHUNK_BYTES = 8 * MIB
#: A MAP region: sorted in the writer's memory, so this is what a map task holds.
REGION_BYTES_MAX = 64 * MIB
#: One record of MAP partitions, which may go on over several regions: what Arrow and the JVM have in one array.
RECORD_BYTES_MAX = 2 * GIB - 1
#: Read credit a client may have outstanding on one stream.
STREAM_CREDIT_BYTES_MAX = 64 * MIB
#: Reduce partitions of one shuffle.
PARTITIONS_MAX = 1_000_000
#: Maps of one shuffle.
MAPS_MAX = 1_000_000
#: Workers of one shuffle that get it when it is registered; with more of them, the others ask.
ANNOUNCED_MAX = 64
#: Copies of a partition or map file.
COPIES_MAX = 5
#: Tags of a worker, and those that a shuffle is confined to.
TAGS_MAX = 16
#: Epochs of one generation, all partitions together: moves are stopped before they reach it.
EPOCHS_MAX = 4_000_000
#: Applications whose usage a heartbeat reports, the largest, and shuffles of each.
APPLICATIONS_REPORTED_MAX = 128
SHUFFLES_REPORTED_MAX = 4
#: Other workers of its host whose heartbeats one brings along.
NEIGHBOURS_MAX = 255
#: Any u32 id.
U32_MAX = 0xFFFF_FFFF
#: One Raft command, checked before it is proposed. Larger registers and commits go as numbered parts.
COMMAND_BYTES_MAX = 8 * MIB
#: One part of a register or commit that is too large for a single command: small, since heartbeats wait behind it.
COMMAND_PART_BYTES = 1 * MIB
#: Parts that one call may have.
COMMAND_PARTS_MAX = 256
#: One control message (gRPC or HTTP body).
CONTROL_MESSAGE_BYTES_MAX = 64 * MIB
#: Names given by users: applications, hosts, racks, worker names, paths.
NAME_BYTES_MAX = 255
#: A long poll is answered after this at the latest; clients ask again.
LONG_POLL_MS_MAX = 30_000
#: Token in the first frame of a connection.
TOKEN_BYTES_MAX = 4 * KIB

assert BATCH_BYTES_MAX <= FRAME_BODY_BYTES_MAX, "a received batch is in one frame"
assert READ_FRAME_BYTES <= STREAM_CREDIT_BYTES_MAX, "full credit must allow at least one frame"
assert FRAME_BODY_BYTES_MAX <= REGION_BYTES_MAX, "a region holds at least one full frame"
assert COMMAND_PART_BYTES < COMMAND_BYTES_MAX, "a part travels in a command with an envelope around it"
assert COMMAND_PART_BYTES * COMMAND_PARTS_MAX >= CONTROL_MESSAGE_BYTES_MAX, "what a message may carry can be stored"
assert PUSH_BATCHES_MAX * 18 + 512 < FRAME_META_BYTES_MAX, "the longest push fits a frame's meta"
assert SEAL_EPOCHS_MAX * 34 + 64 < FRAME_META_BYTES_MAX, "the longest seal answer fits a frame's meta"
assert STREAM_FILES_MAX * 16 < FRAME_META_BYTES_MAX, "the longest stream request fits a frame's meta"
assert SETTLE_EPOCHS_MAX * (COPIES_MAX - 1) * 12 + 64 < FRAME_META_BYTES_MAX, "the longest such answer fits a frame"
