"""The catalogue of all that Holdfast logs, in Python and in the Spark plug-in: level, sentence, and what to do.

Rules: a name is the constant in small letters, with a dot behind its noun: WORKER_LOST is `worker.lost` (in a search a
dot stands for the underscore, too). Names never change their meaning: people search for them and alert on them.
Sentences are fixed; variable parts are in facts, `key=value`. The events that masters keep for
`holdfast events` are in here as well, so that there is one name for one thing. wire/LogEvent.java and
docs/log_events.md are made from this file; tests/docs/test_log_events.py compares all three with the calls.
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
    Level.INFO: "routine: there is nothing to do",
    Level.WARNING: "look at it when you can: Holdfast continues, perhaps with less",
    Level.ERROR: "data or service is at risk: act now",
    Level.CRITICAL: "the process ends",
}

_Entry = tuple[Level, str, str]
_NOTHING = "Nothing."
_REPORT = "Report it with its traceback: it is a mistake in Holdfast."


def _debug(sentence: str) -> _Entry:
    return Level.DEBUG, sentence, _NOTHING


def _info(sentence: str, to_do: str = _NOTHING) -> _Entry:
    return Level.INFO, sentence, to_do


def _warning(sentence: str, to_do: str) -> _Entry:
    return Level.WARNING, sentence, to_do


def _error(sentence: str, to_do: str = _REPORT) -> _Entry:
    return Level.ERROR, sentence, to_do


def _critical(sentence: str, to_do: str = _REPORT) -> _Entry:
    return Level.CRITICAL, sentence, to_do


@unique
class LogEvent(Enum):
    """One thing that can be logged."""

    # Applications, leases and tokens.
    APPLICATION_REGISTERED = _info("An application registered.")
    APPLICATION_SILENT = _warning(
        "All leases of an application have expired; its data is deleted after the grace.",
        "Look whether its driver still runs and reaches the masters.",
    )
    APPLICATION_HEARD = _info("An application renewed its lease during the grace; its data is kept.")
    APPLICATION_ENDED = _info("An application has ended, and its data is deleted.")
    APPLICATION_GONE = _error(
        "The masters dropped this application, and its data with it.",
        "Look why its lease was not renewed: `application.silent` and `application.ended` of the masters.",
    )
    APPLICATION_REPLACED = _warning(
        "The masters dropped this application; it registers again for its next shuffles.",
        "See `application.gone`; Spark runs the maps of earlier shuffles again.",
    )
    LEASE_RENEWAL_FAILED = _warning(
        "A lease could not be renewed; it is tried again.", "If it repeats, check whether the masters are reachable."
    )
    LEASE_INTERNAL_ERROR = _error("A lease could not be renewed because of an unexpected error; it is tried again.")
    LEASE_RELEASE_FAILED = _warning(
        "A lease could not be released; it expires by itself.", "Nothing, unless the masters stay out of reach."
    )
    TOKEN_REPLACED = _info("An expired token was replaced by a new one.")
    TOKEN_WAITING = _warning(
        "A task waits for the application's token.", "Look whether the driver is busy, and reachable from executors."
    )
    TOKEN_RENEWAL_FAILED = _warning(
        "A token could not be renewed; the old one is used, and it is tried again.",
        "If it repeats, check whether the masters are reachable and have the secret that they had.",
    )
    TOKEN_INTERNAL_ERROR = _error("A token could not be renewed because of an unexpected error; it is tried again.")
    TOKEN_REPLACEMENT_FAILED = _warning(
        "A token was refused, and there is no other one for this application.",
        "Look whether the user's token is valid, and whether the masters have another secret.",
    )

    # Shuffles.
    SHUFFLE_WAITING = _warning(
        "A shuffle cannot be registered yet; it is tried again.",
        "`reason` says what is missing: start workers or masters, or make room.",
    )
    SHUFFLE_FEWER_COPIES = _warning(
        "A shuffle was placed with fewer copies than asked for, and stays so.",
        "Start workers on more hosts, for later shuffles.",
    )
    SHUFFLE_FALLBACK = _warning(
        "A shuffle uses Spark's own shuffle instead of Holdfast: executors, or Spark's shuffle service, keep its data.",
        "`reason` says what is missing; without that service the executors of this job must not be removed.",
    )
    SHUFFLE_WRITTEN = _debug("A shuffle is written.")
    SHUFFLE_COMMITTED = _info("A shuffle was committed.")
    SHUFFLE_DATA_LOST = _error(
        "A shuffle was committed without epochs that no worker sealed; readers that need them fail.",
        "Spark runs the maps again by itself; others run them in a new generation. Look why workers were lost.",
    )
    SHUFFLE_UNDER_REPLICATED = _warning(
        "A shuffle was committed with fewer copies than asked for.",
        "Bring lost workers back: they seal the `awaited` epochs. All others stay so.",
    )
    SHUFFLE_OPEN_SHORT = _warning(
        "Open shuffles have fewer copies than asked for: they were placed so, or a worker is lost, or copies lack"
        " something.",
        "Bring lost workers back; new data goes to others already. What is missing is made again after the commit.",
    )
    SHUFFLE_COPIES_INCOMPLETE = _warning(
        "Copies of an open shuffle lack something that was acknowledged since others have it (`ack_copies`).",
        "Look at workers that are slow or lost. Such copies count for nothing; they are made again after the commit.",
    )
    SHUFFLE_COPIES_ADDED = _info("Missing copies of a committed shuffle were sealed, or made of others.")
    SHUFFLE_COPIES_PLACED = _warning(
        "A committed shuffle is short of copies: `copies` of it are made again of those that are left.",
        "Look at the workers that are lost: with too few of them a shuffle stays short of copies.",
    )
    SHUFFLE_DROPPED = _info("A shuffle was dropped, and its data is deleted.")
    SHUFFLE_UNREGISTER_FAILED = _warning(
        "A shuffle could not be unregistered; its data stays until that succeeds or the application ends.",
        "If it repeats, check whether the masters are reachable.",
    )
    GENERATIONS_DROPPED = _info("Generations of a shuffle that were replaced by a committed one were dropped.")
    GENERATION_WAITING = _warning(
        "A map task waits for another one that asks where the shuffle is written.",
        "Look for `call.slow` and `shuffle.waiting` of the same executor.",
    )
    GENERATION_FAILED = _warning(
        "A generation of a shuffle cannot be read; Spark runs its maps again in a new one.",
        "`reason` names the workers or the data: look why they are gone.",
    )
    GENERATION_OPEN_FAILED = _warning(
        "The next generation of a shuffle could not be opened; its maps ask for it again.",
        "If the job fails, look at the masters.",
    )

    # Pushes, map files and reads.
    PUSH_SLOW = _warning(
        "A push takes long: no batch was acknowledged.",
        "`reason` names workers: look whether they, their disks or the network are slow.",
    )
    PUSH_WAITING = _warning(
        "A worker has no room for a push, which waits for it.", "Look at the memory and the disks of that worker."
    )
    PUSH_WAITING_FOR_MEMORY = _warning(
        "A map task waits for direct memory.", "Give executors more of it (-XX:MaxDirectMemorySize), or fewer cores."
    )
    PUSH_WORKER_UNREACHABLE = _warning(
        "A worker cannot be reached for a push; the masters are asked where it is.",
        "Look whether executors reach that worker.",
    )
    PUSH_SYNC_SLOW = _warning("Pushes wait for a disk to sync.", "Look at the disks of `directories`.")
    PUSH_REPLICATION_FAILED = _warning(
        "Pushes could not be replicated to another worker; their writers use new places.",
        "`reason` names the worker: look whether it runs and is reachable from this one.",
    )
    PUSH_MEMORY_WAITING = _warning(
        "Data acknowledged from memory waits for room on its disk.", "Make room on the disks of this worker."
    )
    PUSH_MEMORY_WRITTEN = _info("Data acknowledged from memory was written after it had waited for room.")
    PUSH_INTERNAL_ERROR = _error("A push ended with an unexpected error; what it touched is not used.")
    MAP_FILE_SLOW = _warning(
        "Writing a map file takes long: no frame was acknowledged.",
        "Look whether the workers of that map, their disks or the network are slow.",
    )
    MAP_FILE_NOT_REMOVED = _warning(
        "An unfinished map file cannot be removed now; it is removed with its shuffle.", "Look at that worker's disk."
    )
    WRITER_ABANDONED = _warning(
        "A writer could not be ended in order, because its event loop is busy or closed.",
        "Nothing: what it wrote is deleted with its shuffle.",
    )
    READ_WAITING = _warning("A reader waits for data.", "`what` names workers or the masters: look at these.")
    READ_MANIFEST_KEPT = _debug("A manifest could not be read again; the reader uses the one it has.")
    STREAM_FAILED = _warning("A stream to a reader failed.", "Nothing if readers went on; else look at `reason`.")

    # Calls, connections and waits.
    CALL_SLOW = _warning("A call to the masters takes long.", "Look at the masters with `holdfast status`.")
    CALL_INTERNAL_ERROR = _error("A call ended with an unexpected error.")
    LEADER_MISSING = _warning(
        "No leader was found; the masters are asked again.",
        "Look at the masters with `holdfast status`: a majority has to run, and to be reachable from here.",
    )
    MASTERS_CALL_FAILED = _warning(
        "A call of this worker to the masters failed; it is repeated.",
        "Look at the masters with `holdfast status`, and at the address and cluster id in this worker's configuration.",
    )
    REQUEST_CUT_OFF = _warning("An HTTP request ended before its body was complete.", "Nothing; a client went away.")
    REQUEST_INTERNAL_ERROR = _error("A request ended with an unexpected error.")
    CONNECTION_CLOSED = _info("A connection was closed because of an error.", "Nothing; the peer gets the reason, too.")
    CONNECTION_STALLED = _warning(
        "A worker takes no bytes in the middle of a frame; the connection is closed if that continues.",
        "Look at that worker and the network to it.",
    )
    CONNECTION_SEND_FAILED = _error(
        "A connection failed while data was sent.",
        "If `reason` is an error of a disk, look at the disks of this worker.",
    )
    CONNECTION_INTERNAL_ERROR = _error("A connection was closed because of an unexpected error.")
    WAIT_LONG = _warning("Something waits for long.", "`what` says for what: look at that.")
    TASK_INTERNAL_ERROR = _error("A background task ended with an unexpected error.")
    TICK_INTERNAL_ERROR = _error("A part of what is done every second failed with an unexpected error.")
    PROCESS_CRASHED = _critical("An error that nothing handles ends this process, or one of its threads.")
    LIBRARY_MESSAGE = _info("A library said this; sentence and level are its own.", "See the library of `logger`.")
    SYSTEMD_UNREACHABLE = _warning(
        "The service manager cannot be reached with the state of this process.",
        "Look at NOTIFY_SOCKET and the unit's NotifyAccess.",
    )
    SETTING_UNSUITABLE = _warning(
        "A setting of Spark does not suit Holdfast.", "Do what `reason` says; see docs/spark.md."
    )
    PLUGIN_COMPILING = _warning(
        "The plug-in is compiled for this Spark, once; it takes about ten seconds.",
        "Nothing; a wheel that has this line of Spark spares it.",
    )

    # Masters.
    MASTER_STARTED = _info("A master started.")
    MASTER_STOPPING = _info("The master is shutting down.")
    MASTER_FAILED = _critical("The master cannot serve; the process ends.", "`reason` says what is wrong.")
    MASTER_STALLED = _warning(
        "The leader was stopped for a while; all workers and leases get their full time again.",
        "Look whether its host was suspended, or has too little CPU or memory.",
    )
    MASTER_DISCONNECTED = _warning("A master is not connected.", "Look whether it runs, and at the network to it.")
    MASTER_CONNECTED = _info("A master is connected again.")
    MASTERS_RESTORED = _warning(
        "The masters were restored from a backup: they do not know what was registered after it; workers keep that.",
        "See docs/operations.md, Backup.",
    )
    LEADER_ELECTED = _info("The leader changed.")
    LEADER_STEPPED_DOWN = _warning(
        "A master is no longer the leader.", "Nothing if it was restarted or handed over; else look at the masters."
    )
    LEADER_HANDOVER_FAILED = _info("The leader shuts down without a successor; the other masters elect one.")
    LEADER_TICK_FAILED = _warning(
        "Decisions of the leader did not get into the log; they are made again.",
        "If it repeats, check whether a majority of the masters runs.",
    )
    RAFT_ADDRESS_UNRESOLVED = _warning("The address of a peer cannot be resolved.", "Look at the name service.")
    RAFT_PEER_UNREACHABLE = _warning(
        "There is no connection to a peer.", "Look whether that master runs, and at the network to its Raft port."
    )
    RAFT_PEER_REFUSED = _warning(
        "A connection to the Raft port was refused: it comes from none of the peers.",
        "Find its owner: only masters have to reach the Raft port.",
    )
    RAFT_MEMBERS_AGREED = _info("All masters are connected and have the same list of masters: it may be changed again.")
    RAFT_DISK_FAILED = _critical(
        "The disk of the Raft journal cannot be written; the process ends with status 74.",
        "Make room there or mend the disk, and start the master: what was acknowledged is still on it.",
    )
    RAFT_FAILED = _critical("The Raft thread failed; the process ends.")
    CONFIGURATION_RELOADED = _info("A section of the configuration was read again.")
    CONFIGURATION_REFUSED = _warning(
        "A section of the configuration was not read again; the one before stays.", "Correct what `reason` says."
    )
    CERTIFICATE_EXPIRING = _warning(
        "The TLS certificate of this server expires soon.", "Put a new one in its place and restart this server."
    )
    FAULTS_ENABLED = _warning("Faults are switched on, for drills.", "Remove [faults] from a cluster that is used.")

    # What the leader does.
    COMMIT_FAILED = _warning("A commit failed; its caller has the error.", "`reason` says what is wrong.")
    COMMIT_LATE = _debug("A shuffle was not committed ahead of its readers; the first of them does it.")
    SEAL_SKIPPED = _warning(
        "A shuffle is committed without the copies of a worker that did not seal them.",
        "Look at that worker; `shuffle.data_lost` and `shuffle.under_replicated` say what it came to.",
    )
    SEAL_EARLY_FAILED = _info(
        "Epochs could not be sealed before the commit; it is tried again, and the commit seals them."
    )
    SEAL_LATE_FAILED = _info("Missing copies of a committed shuffle cannot be sealed yet; it is tried again.")
    RESTORE_FAILED = _info("Copies of a committed shuffle could not be restored yet; it is tried again.")
    SEAL_DEFERRED = _debug("Epochs cannot be sealed yet; it is tried again.")
    SEAL_INTERNAL_ERROR = _error("Epochs could not be sealed because of an unexpected error.")
    EPOCHS_MOVED = _warning(
        "Open epochs were moved from workers that were lost, restarted or draining.",
        "Nothing if these were restarted or drained; else look at them.",
    )
    EPOCHS_MOVE_FAILED = _warning(
        "Open epochs could not be moved to other workers; it is tried again.", "Start workers, or make room."
    )
    PLACEMENT_NO_ROOM = _error(
        "No worker has room for new data; writers wait or fail.", "Make room: add workers or disks, or drop shuffles."
    )
    QUOTA_EXCEEDED = _warning(
        "A shuffle was refused because of a quota.", "Drop shuffles of that user, or raise [quota]."
    )
    PLACE_LOOKUP_FAILED = _warning(
        "The places of hosts could not be looked up; the ones that are recorded stay.",
        "Correct the script or resolver in [placement].",
    )
    PLACE_INVALID = _warning("A resolver gave an invalid place, which is not used.", "Correct it in [placement].")
    PLACE_CHANGED = _info("Workers have other places than before.")
    PLACE_RECORD_FAILED = _warning(
        "The places of workers did not get into the log; it is tried again.",
        "If it repeats, check whether a majority of the masters runs.",
    )

    # Workers.
    WORKER_REGISTERED = _info("A worker registered.")
    WORKER_RESTARTED = _warning("A worker restarted without having been drained.", "Look why it ended.")
    WORKER_LOST = _error("A worker is lost: it sends no heartbeats.", "Look at its host and its log, and start it.")
    WORKER_RETURNED = _info("A lost or stopped worker is back.")
    WORKER_LEFT = _info("A drained worker has stopped.")
    WORKER_DRAINING = _info("A worker drains: it takes no new data.")
    WORKER_DRAIN_CANCELLED = _info("A worker takes new data again: its drain was cancelled.")
    WORKER_LEAVING = _info("The worker shuts down as soon as its open data is handed over.")
    WORKER_STOPPING = _info("The worker is shutting down.")
    WORKER_STOP_SLOW = _warning(
        "The shutdown waits for a disk or for the DFS.", "Nothing: it ends without it after 20 s. Look at the disks."
    )
    WORKER_STOP_INCOMPLETE = _warning(
        "The worker ends without waiting any longer for what `what` names.",
        "Nothing: its next start finds all that was acknowledged. Look at its disks.",
    )
    WORKER_DUPLICATED = _error(
        "Another process uses the directories of this worker, or a copy of them.", "Stop one of the two."
    )
    WORKER_INCARNATION_RAISED = _warning(
        "The masters have a later start of this worker; it continues with a higher incarnation.",
        "Nothing if its directories were restored; else look for a second process.",
    )
    IDENTITY_UNREADABLE = _warning(
        "The file with this worker's identity cannot be read in one directory; the others are used.",
        "Look at the disk of `path`.",
    )
    IDENTITY_NOT_WRITTEN = _warning(
        "The file with this worker's identity could not be written to one directory.", "Look at the disk of `path`."
    )
    REGISTRATION_INTERNAL_ERROR = _error("Registering failed with an unexpected error; it is tried again.")
    DATA_DELETED = _info("Data of dropped shuffles, or of files that belong to none, was deleted.")
    DATA_DELETION_FAILED = _warning("Data could not be deleted; it is tried again.", "Look at that worker's disks.")
    DATA_KEPT = _error(
        "Data that the masters do not know is kept, because they may have lost it.",
        "See docs/operations.md, Backup: restore the masters, or have the data forgotten.",
    )
    DATA_LOST = _error(
        "The worker ends, and data that was acknowledged from memory could not be sealed: these copies are lost.",
        "Readers use other copies, or maps run again. Look why the disks were slow or full.",
    )

    # Storage.
    STORAGE_OPENED = _info("The storage of this worker was opened.")
    STORAGE_INTERNAL_ERROR = _error("The result of a thread of the storage could not be used.")
    STORAGE_RESULT_UNUSED = _debug("The result of a thread of the storage came after the event loop had ended.")
    DIRECTORY_FAILING = _error(
        "A directory cannot be used; its worker writes to others.", "Look at its disk; see docs/runbooks.md."
    )
    DIRECTORY_FULL = _warning("A directory has no room for more data.", "Make room, or add disks or workers.")
    DIRECTORY_RECOVERED = _info("A directory can be used again.")
    DIRECTORY_MISCONFIGURED = _warning("A directory is not what the configuration says.", "Do what `reason` says.")
    DIRECTORY_PERMISSIONS = _warning(
        "Other users of this host could read or change what is in a directory.",
        "Nothing if `closed` says that it was corrected; else do that as `reason` says.",
    )
    DIRECTORY_INTERNAL_ERROR = _error("Checking a directory failed with an unexpected error.")
    FILE_MOVE_FAILED = _warning("A file could not be moved to another tier.", "Look at that tier's disk or store.")
    FILE_SOURCE_LEFT = _warning("A file was moved, and is still at its old place, too.", "Look at that place's disk.")
    FILE_MOVE_INTERNAL_ERROR = _error("A file could not be moved because of an unexpected error.")
    VIEW_FAILED = _warning(
        "The chunks of a file could not be ordered by map; readers of single maps fetch more of it.",
        "`reason` names the file: look at its disk, and run `holdfast verify`.",
    )
    DFS_FAILING = _error("A DFS cannot be used; files stay on disks.", "Look at the store and at [dfs].")
    DFS_RECOVERED = _info("A DFS can be used again.")
    DFS_SLOW = _warning("A call to the DFS takes long.", "Look at the store, and at the network to it.")
    DFS_FILES_LEFT = _warning(
        "Files of a dropped shuffle stay on the DFS for now; the worker tries again, or the leader removes them later.",
        "If it repeats, look at the store; the leader removes them after [dfs] clean_every and clean_grace.",
    )
    DFS_SEARCH_FAILED = _warning("The DFS cannot be searched for files yet; it is tried again.", "Look at the store.")
    DFS_SEARCH_INTERNAL_ERROR = _error("The DFS could not be searched because of an unexpected error.")
    DFS_FILE_DAMAGED = _warning("A file on the DFS is missing or damaged, and not used.", "Look at the store.")
    DFS_NOT_CONFIGURED = _warning(
        "Workers have a DFS and this master has none: what lost workers left there is not removed.",
        "Set the same [dfs] on all masters.",
    )
    DFS_FOLDER_REMOVED = _info("An unused folder was removed from the DFS.")
    DFS_CLEANING_FAILED = _warning("The DFS cannot be cleaned; it is tried again.", "Look at the store and at [dfs].")
    DFS_UNKNOWN_APPLICATIONS = _warning(
        "The DFS has data of applications that the masters never knew; it stays.",
        "If it is not needed, remove it with `holdfast forget INSTANCE`.",
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
    if isinstance(fact, list | tuple):
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
