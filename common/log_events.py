"""The catalogue of all that Holdfast logs, in Python and in the Spark plug-in: level, sentence, and what to do.

Rules: a name is the constant in small letters, with a dot behind its noun: WORKER_LOST is `worker.lost` (in a search a
dot stands for the underscore, too). Names never change their meaning: people search for them and alert on them.
Sentences are fixed; variable parts are in facts, `key=value`. The events that masters keep for
`holdfast events` are in here as well, so that there is one name for one thing. wire/LogEvent.java and
docs/operate/log_events.md are made from this file; tests/docs/test_log_events.py compares all three with the calls.
Logged by common/system/log.py and LogEvent.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, IntEnum, unique


class Level(IntEnum):
    """What a line asks of its reader. The numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    CRITICAL = 50

    @property
    def word(self) -> str:
        """As it is written for people and on the wire."""
        return self.name.lower()


#: What each means, everywhere.
MEANINGS = {
    Level.DEBUG: "for developers of Holdfast",
    Level.INFO: "routine",
    Level.WARNING: "look when you can; Holdfast continues, perhaps with less",
    Level.ERROR: "data or service is at risk: act now; report those without advice, with the traceback",
    Level.CRITICAL: "the process ends",
}

_Entry = tuple[Level, str, str]
_NOTHING = "Nothing."
REPORT = "Report it with its traceback."


def _debug(sentence: str) -> _Entry:
    return Level.DEBUG, sentence, _NOTHING


def _info(sentence: str, to_do: str = _NOTHING) -> _Entry:
    return Level.INFO, sentence, to_do


def _warning(sentence: str, to_do: str) -> _Entry:
    return Level.WARNING, sentence, to_do


def _error(sentence: str, to_do: str = REPORT) -> _Entry:
    return Level.ERROR, sentence, to_do


def _critical(sentence: str, to_do: str = REPORT) -> _Entry:
    return Level.CRITICAL, sentence, to_do


@unique
class LogEvent(Enum):
    """One thing that can be logged."""

    # Applications, leases and tokens.
    APPLICATION_REGISTERED = _info("An application registered.")
    APPLICATION_SILENT = _warning(
        "All leases of an application expired; its data is deleted after the grace.", "Check its driver."
    )
    APPLICATION_HEARD = _info("An application renewed its lease during the grace.")
    APPLICATION_ENDED = _info("An application ended; its data is deleted.")
    APPLICATION_GONE = _error(
        "The masters dropped this application and its data.",
        "See the masters' `application.silent` or `application.ended`.",
    )
    APPLICATION_REPLACED = _warning(
        "The masters dropped this application; it registers again.",
        "See `application.gone`. Spark runs earlier maps again.",
    )
    LEASE_RENEWAL_FAILED = _warning("Renewing a lease failed; retrying.", "If it repeats, check the masters.")
    LEASE_INTERNAL_ERROR = _error("Renewing a lease failed unexpectedly; retrying.")
    LEASE_RELEASE_FAILED = _warning(
        "Releasing a lease failed; it expires by itself.", "If it repeats, check the masters."
    )
    TOKEN_REPLACED = _info("An expired token was replaced.")
    TOKEN_WAITING = _warning(
        "A task waits for the application's token.", "Check the driver, and that executors reach it."
    )
    TOKEN_RENEWAL_FAILED = _warning(
        "Renewing a token failed; the old one stays in use.", "If it repeats, check the masters and their secret."
    )
    TOKEN_INTERNAL_ERROR = _error("Renewing a token failed unexpectedly; retrying.")
    TOKEN_REPLACEMENT_FAILED = _warning(
        "A token was refused, and this application has no other.", "Check the user's token and the masters' secret."
    )

    # Shuffles.
    SHUFFLE_WAITING = _warning("A shuffle cannot be registered yet; retrying.", "`reason` shows what is missing.")
    SHUFFLE_FEWER_COPIES = _warning(
        "A shuffle was placed with fewer copies than requested, permanently.", "Start workers on more hosts."
    )
    SHUFFLE_FALLBACK = _warning(
        "A shuffle uses Spark's own shuffle instead of Holdfast.",
        "See `reason`. Without Spark's shuffle service keep its executors.",
    )
    SHUFFLE_FALLBACK_UNREPORTED = _info(
        "Masters do not know yet of shuffles that fell back; the report is tried again."
    )
    SHUFFLE_WRITTEN = _debug("A shuffle is written.")
    SHUFFLE_COMMITTED = _info("A shuffle was committed.")
    SHUFFLE_DATA_LOST = _error(
        "Epochs were lost at a commit: no worker sealed them; their readers fail.",
        "Run the maps again, as Spark does. Check lost workers.",
    )
    SHUFFLE_UNDER_REPLICATED = _warning(
        "A shuffle was committed with too few copies.",
        "Start lost workers: they seal the `awaited` epochs. Others stay so.",
    )
    SHUFFLE_OPEN_SHORT = _warning(
        "Open shuffles have too few complete copies.", "Start lost workers. Missing copies are made after the commit."
    )
    SHUFFLE_COPIES_INCOMPLETE = _warning(
        "Copies of an open shuffle lack acknowledged data (`ack_copies`).",
        "Check slow or lost workers. The copies are made again after the commit.",
    )
    SHUFFLE_COPIES_GONE = _warning("A live worker has lost sealed copies with a disk.", "Check its disks.")
    SHUFFLE_COPIES_ADDED = _info("Missing copies of a committed shuffle were added.")
    SHUFFLE_COPIES_PLACED = _warning(
        "A committed shuffle lacks copies: `copies` of it are made again.", "Check the lost workers."
    )
    SHUFFLE_DROPPED = _info("A shuffle was dropped; its data is deleted.")
    SHUFFLE_UNREGISTER_FAILED = _warning(
        "Unregistering a shuffle failed; its data stays for now.",
        "If it repeats, check the masters.",
    )
    GENERATIONS_DROPPED = _info("Older generations of a committed shuffle were dropped.")
    GENERATION_WAITING = _warning(
        "A map task waits for another that asks where the shuffle is written.",
        "See `call.slow` and `shuffle.waiting` there.",
    )
    GENERATION_FAILED = _warning(
        "A generation of a shuffle cannot be read; Spark runs its maps again.", "See `reason`."
    )
    GENERATION_OPEN_FAILED = _warning(
        "Opening the next generation of a shuffle failed; its maps ask again.", "If the job fails, check the masters."
    )

    # Pushes, map files and reads.
    PUSH_SLOW = _warning("A push takes long: no batch was acknowledged.", "Check the workers in `reason`.")
    PUSH_WAITING = _warning("A push waits for a worker that has no room.", "Check that worker's memory and disks.")
    PUSH_WAITING_FOR_MEMORY = _warning(
        "A map task waits for direct memory.", "Give executors more (-XX:MaxDirectMemorySize) or fewer cores."
    )
    PUSH_WORKER_UNREACHABLE = _warning(
        "A push cannot reach a worker; it asks the masters for its address.", "Check the network from executors."
    )
    PUSH_SYNC_SLOW = _warning("Pushes wait for a disk to sync.", "Check the disks of `directories`.")
    PUSH_REPLICATION_FAILED = _warning(
        "Pushes could not be replicated to another worker; writers use new places.",
        "Check the worker in `reason`, and the network to it.",
    )
    PUSH_MEMORY_WAITING = _warning("Data acknowledged from memory waits for room on its disk.", "Make room.")
    PUSH_MEMORY_WRITTEN = _info("Data acknowledged from memory was written after a wait.")
    PUSH_INTERNAL_ERROR = _error("A push failed unexpectedly; what it touched is not used.")
    MAP_FILE_SLOW = _warning(
        "Writing a map file takes long: no frame was acknowledged.", "Check its workers and the network."
    )
    MAP_FILE_NOT_REMOVED = _warning(
        "Removing an unfinished map file failed; its shuffle's end removes it.", "Check that worker's disk."
    )
    WRITER_ABANDONED = _warning(
        "A writer could not end in order: its event loop is busy or closed.",
        "No action: its shuffle's end deletes its data.",
    )
    READ_WAITING = _warning("A reader waits for data.", "Check the servers in `what`.")
    READ_CORRUPT = _warning(
        "A worker sent wrong data; the reader tries again.",
        "Check its disks: run `holdfast verify`.",
    )
    READ_MANIFEST_KEPT = _debug("Reading a manifest again failed; the reader keeps the old one.")
    STREAM_FAILED = _warning("A stream to a reader failed.", "If readers failed, see `reason`.")

    # Calls, connections and waits.
    CALL_SLOW = _warning("A call to the masters takes long.", "Run `holdfast status`.")
    CALL_INTERNAL_ERROR = _error("A call failed unexpectedly.")
    LEADER_MISSING = _warning(
        "No leader was found; the masters are asked again.",
        "Check that a majority of masters is reachable (`holdfast status`).",
    )
    MASTERS_CALL_FAILED = _warning(
        "A call of this worker to the masters failed; it is repeated.",
        "Check the masters, and this worker's addresses and cluster id.",
    )
    REQUEST_CUT_OFF = _warning("An HTTP request ended before its body.", "No action: a client disconnected.")
    REQUEST_INTERNAL_ERROR = _error("A request failed unexpectedly.")
    CONNECTION_CLOSED = _info("An error closed a connection.", "No action: the peer got the reason.")
    CONNECTION_STALLED = _warning(
        "A worker takes no bytes in the middle of a frame; soon the connection closes.",
        "Check that worker and the network.",
    )
    CONNECTION_SEND_FAILED = _error(
        "Sending data on a connection failed.", "If `reason` is a disk error, check this worker's disks."
    )
    CONNECTION_INTERNAL_ERROR = _error("An unexpected error closed a connection.")
    WAIT_LONG = _warning("Something waits for long.", "Check what `what` shows.")
    TASK_INTERNAL_ERROR = _error("A background task failed unexpectedly.")
    TICK_INTERNAL_ERROR = _error("A periodic task failed unexpectedly.")
    PROCESS_CRASHED = _critical("An unhandled error ends this process or a thread of it.")
    LIBRARY_MESSAGE = _info("A message of a library, with its own sentence and level.", "See the library of `logger`.")
    SYSTEMD_UNREACHABLE = _warning("The service manager cannot be reached.", "Check NOTIFY_SOCKET and NotifyAccess.")
    SETTING_UNSUITABLE = _warning("A setting of Spark does not suit Holdfast.", "See `reason`.")
    PLUGIN_COMPILING = _warning(
        "The plug-in is compiled for this Spark, once: about ten seconds.", "No action: wheels avoid it."
    )

    # Masters.
    MASTER_STARTED = _info("A master started.")
    MASTER_STOPPING = _info("The master shuts down.")
    MASTER_FAILED = _critical("The master cannot serve; the process ends.", "See `reason`.")
    MASTER_STALLED = _warning(
        "The leader was paused; all leases start anew.",
        "Check whether its host was suspended, or is short of CPU or memory.",
    )
    MASTER_DISCONNECTED = _warning("A master is not connected.", "Check it and the network.")
    MASTER_CONNECTED = _info("A master is connected again.")
    MASTERS_RESTORED = _warning(
        "The masters were restored from a backup; workers keep data of later registrations.",
        "See docs/operate/operations.md, Backup.",
    )
    LEADER_ELECTED = _info("The leader changed.")
    LEADER_STEPPED_DOWN = _warning(
        "A master is no longer the leader.", "Unless restarted or handed over, check the masters."
    )
    LEADER_HANDOVER_FAILED = _info("The leader shuts down without a successor; an election follows.")
    LEADER_TICK_FAILED = _warning(
        "Decisions of the leader did not reach the log; it repeats them.",
        "If it repeats, check the masters.",
    )
    RAFT_ADDRESS_UNRESOLVED = _warning("A peer's address cannot be resolved.", "Check the name service.")
    RAFT_PEER_UNREACHABLE = _warning("There is no connection to a peer.", "Check that master and its Raft port.")
    RAFT_PEER_REFUSED = _warning(
        "The Raft port refused a connection that comes from no peer.", "Find its owner: only masters need this port."
    )
    RAFT_MEMBERS_AGREED = _info("All masters have the same list, which may now change again.")
    RAFT_DISK_FAILED = _critical(
        "The disk of the Raft journal cannot be written; the process ends with status 74.",
        "Make room or repair the disk, then start the master: acknowledged data is safe.",
    )
    RAFT_FAILED = _critical("The Raft thread failed; the process ends.")
    CONFIGURATION_RELOADED = _info("A section of the configuration was reloaded.")
    CONFIGURATION_REFUSED = _warning(
        "Reloading a section of the configuration failed; the old one stays.", "Correct `reason`."
    )
    CERTIFICATE_EXPIRING = _warning("This server's TLS certificate expires soon.", "Replace it and restart.")
    FAULTS_ENABLED = _warning("Faults are on, for drills.", "Remove [faults] in production.")

    # What the leader does.
    COMMIT_FAILED = _warning("A commit failed; its caller gets the error.", "See `reason`.")
    COMMIT_LATE = _debug("The first reader commits this shuffle.")
    SEAL_SKIPPED = _warning(
        "A shuffle is committed without copies that a worker did not seal.",
        "Check that worker, `shuffle.data_lost` and `shuffle.under_replicated`.",
    )
    SEAL_EARLY_FAILED = _info("Sealing epochs early failed; the commit seals them.")
    SEAL_LATE_FAILED = _info("Sealing missing copies of a committed shuffle failed; retrying.")
    RESTORE_FAILED = _info("Restoring copies of a committed shuffle failed; retrying.")
    SEAL_DEFERRED = _debug("Epochs cannot be sealed yet; retrying.")
    SEAL_INTERNAL_ERROR = _error("Sealing epochs failed unexpectedly.")
    EPOCHS_MOVED = _warning(
        "Open epochs moved from lost, restarted or draining workers.",
        "Unless restarted or drained, check these workers.",
    )
    EPOCHS_MOVE_FAILED = _warning("Moving open epochs failed; retrying.", "Start workers or make room.")
    PLACEMENT_NO_ROOM = _error("No worker has room; writers wait or fail.", "Add workers or disks, or drop shuffles.")
    QUOTA_EXCEEDED = _warning("A quota refused a shuffle.", "Drop shuffles of that user, or raise [quota].")
    PLACE_LOOKUP_FAILED = _warning(
        "Looking up places of hosts failed; recorded ones stay.", "Correct the resolver in [placement]."
    )
    PLACE_INVALID = _warning("A resolver gave an invalid place, which is not used.", "Correct it in [placement].")
    PLACE_CHANGED = _info("Places of workers changed.")
    PLACE_RECORD_FAILED = _warning(
        "Places of workers did not reach the log; retrying.",
        "If it repeats, check the masters.",
    )

    # Workers.
    WORKER_REGISTERED = _info("A worker registered.")
    WORKER_RESTARTED = _warning("A worker restarted without a drain.", "Find out why.")
    WORKER_LOST = _error("A worker is lost: it sends no heartbeats.", "Check its host and log; start it.")
    WORKER_RETURNED = _info("A lost or stopped worker is back.")
    WORKER_LEFT = _info("A drained worker that nobody needs has stopped.")
    WORKER_REMOVED = _info("A lost worker was removed: it is not expected back.")
    WORKER_DRAINING = _info("A worker drains: it takes no new data.")
    WORKER_DRAIN_CANCELLED = _info("A drain was cancelled.")
    WORKER_LEAVING = _info("The worker shuts down once it has handed over its open data.")
    WORKER_STOPPING = _info("The worker shuts down.")
    WORKER_STOP_SLOW = _warning("The shutdown waits for a disk or the DFS, 20 s at most.", "Check the disks.")
    WORKER_STOP_INCOMPLETE = _warning(
        "The worker ends without waiting longer for `what`.", "No action: its next start finds all acknowledged data."
    )
    WORKER_DUPLICATED = _error("Another process uses this worker's directories, or a copy of them.", "Stop one.")
    WORKER_INCARNATION_RAISED = _warning(
        "The masters know a later start of this worker; it raises its incarnation.",
        "Unless directories were restored, look for a second process.",
    )
    IDENTITY_UNREADABLE = _warning(
        "A directory's identity file cannot be read; the others are used.", "Check the disk of `path`."
    )
    IDENTITY_NOT_WRITTEN = _warning("Writing the identity file to a directory failed.", "Check the disk of `path`.")
    REGISTRATION_INTERNAL_ERROR = _error("Registering failed unexpectedly; retrying.")
    DATA_DELETED = _info("Data of dropped shuffles, or unowned files, were deleted.")
    DATA_DELETION_FAILED = _warning("Deleting data failed; retrying.", "Check that worker's disks.")
    DATA_KEPT = _error(
        "Data that the masters do not know is kept: they may have lost it.",
        "See docs/operate/runbooks.md, HoldfastDataKept.",
    )
    DATA_LOST = _error(
        "The worker ends and cannot seal data acknowledged from memory: these copies are lost.",
        "Check for slow or full disks.",
    )

    # Storage.
    STORAGE_OPENED = _info("The worker opened its storage.")
    STORAGE_INTERNAL_ERROR = _error("The result of a storage thread could not be used.")
    STORAGE_RESULT_UNUSED = _debug("The result of a storage thread came after the event loop ended.")
    DIRECTORY_FAILING = _error(
        "A directory cannot be used; its worker uses others.", "Check its disk (docs/operate/runbooks.md)."
    )
    DIRECTORY_FULL = _warning("A directory is full.", "Make room, or add disks or workers.")
    DIRECTORY_RECOVERED = _info("A directory works again.")
    DIRECTORY_MISCONFIGURED = _warning("A directory differs from its configuration.", "See `reason`.")
    DIRECTORY_PERMISSIONS = _warning(
        "Other users could read or change a directory.",
        "See `reason`, unless `closed` shows that it was corrected.",
    )
    DIRECTORY_INTERNAL_ERROR = _error("Checking a directory failed unexpectedly.")
    FILE_MOVE_FAILED = _warning("Moving a file to another tier failed.", "Check that tier's disk or store.")
    FILE_SOURCE_LEFT = _warning("A file was moved, but its old copy remains.", "Check that disk.")
    FILE_MOVE_INTERNAL_ERROR = _error("Moving a file failed unexpectedly.")
    VIEW_FAILED = _warning(
        "Ordering a file's chunks by map failed; readers of single maps fetch more.",
        "Check the disk of the file in `reason`; run `holdfast verify`.",
    )
    DFS_FAILING = _error("A DFS cannot be used; files stay on disks.", "Check the store and [dfs].")
    DFS_RECOVERED = _info("A DFS works again.")
    DFS_SLOW = _warning("A call to the DFS takes long.", "Check the store and the network.")
    DFS_FILES_LEFT = _warning(
        "Files of a dropped shuffle stay on the DFS; retrying.",
        "If it repeats, check the store. The leader removes them after [dfs] clean_every and clean_grace.",
    )
    DFS_SEARCH_FAILED = _warning("Searching the DFS for files failed; retrying.", "Check the store.")
    DFS_SEARCH_INTERNAL_ERROR = _error("Searching the DFS failed unexpectedly.")
    DFS_FILE_DAMAGED = _warning("A file on the DFS is missing or damaged, and not used.", "Check the store.")
    DFS_NOT_CONFIGURED = _warning(
        "Workers have a DFS but this master has none; leftovers stay there.",
        "Set the same [dfs] on all masters.",
    )
    DFS_FOLDER_REMOVED = _info("An unused folder on the DFS was removed.")
    DFS_CLEANING_FAILED = _warning("Cleaning the DFS failed; retrying.", "Check the store and [dfs].")
    DFS_UNKNOWN_APPLICATIONS = _warning(
        "The DFS has data of unknown applications; it stays.", "Remove unneeded data with `holdfast forget INSTANCE`."
    )

    def __init__(self, level: Level, sentence: str, to_do: str) -> None:
        self.level = level
        self.sentence = sentence
        self.to_do = to_do
        #: `worker.lost`
        self.dotted = self.name.lower().replace("_", ".", 1)

    def __str__(self) -> str:
        return self.dotted


#: Facts are cut to this.
FACT_CHARS_MAX = 2_048
_PLAIN = re.compile(r'[^\s"=]+')


def plain(fact: object) -> object:
    """A fact as JSON has it: numbers, lists, text of bounded length; all else as its text."""
    if fact is None or isinstance(fact, int | float):
        return fact
    if isinstance(fact, list) or type(fact) is tuple:  # a key is a tuple that says itself what it is called
        return [plain(each) for each in fact]
    text = str(fact) or (repr(fact) if isinstance(fact, BaseException) else "")
    return text if len(text) <= FACT_CHARS_MAX else f"{text[:FACT_CHARS_MAX]}…"


def facts_text(facts: Mapping[str, object]) -> str:
    """`worker=w3 reason="it is gone"`: a value with spaces, quotes or equal signs is in quotes."""
    return " ".join(f"{key}={_quoted(plain(fact))}" for key, fact in facts.items())


def line_of(event: LogEvent, facts: Mapping[str, object]) -> str:
    """`worker.lost worker=w3 — A worker is lost: it sends no heartbeats.`"""
    return " ".join(filter(None, (event.dotted, facts_text(facts), "—", event.sentence)))


def _quoted(fact: object) -> str:
    text = ",".join(map(str, fact)) if isinstance(fact, list) else str(fact)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
