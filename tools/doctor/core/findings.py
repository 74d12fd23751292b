"""The findings of the doctor: one for each problem, with where it is and what to do.

Rules: a finding has a code of the table below, which doctor.md repeats and tests name; its remedy is one sentence.
A problem is what breaks a promise, keeps a server or a job from running, or will soon; advice is all else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProblemLevel(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    ADVICE = "advice"


#: Every code and its meaning, by what is checked.
CODES: dict[str, dict[str, str]] = {
    "this host": {
        "python-optimised": "Python runs with -O, which takes the checks out that servers are made of",
        "nofile": "the limit of open files is low",
        "memory": "what a worker may hold in memory, or all workers here, is more than this machine has, or nearly",
        "cores-left": "this host has cores and disks for more workers",
        "library": "a library that the configuration needs is not installed",
    },
    "ports": {
        "port-held": "another process has a port of this server",
        "port-twice": "two of its ports are the same",
        "port-forbidden": "this user may not listen there",
        "port-outgoing": "the system may give the port to an outgoing connection while the server is down",
        "bind-elsewhere": "the address to listen on is none of this machine",
    },
    "names": {
        "name-unknown": "a name of the configuration cannot be looked up here",
        "name-loopback": "other hosts get a loopback name or address, which is their own",
        "address-missing": "other hosts get this host's name only because no address is set",
        "bind-loopback": "it listens on loopback alone, where others have to reach it",
        "raft-elsewhere": "a master's raft address is none of this machine",
    },
    "directories": {
        "directory-unusable": "a directory cannot be made, written or synced by this user",
        "directory-twice": "two directories are the same, or one is inside another",
        "directory-foreign": "it holds the data of another cluster or worker",
        "directory-damaged": "the file with the directory's identity cannot be read",
        "directory-open": "other users of this machine may write there",
        "not-mounted": "/etc/fstab has a file system for it that is not mounted",
        "file-system": "a file system that forgets, or on which locks and syncs cannot be trusted",
        "tier": "the tier is not what the directory is on",
        "one-device": "two directories, of one worker or of two, are on one device",
        "disk-left": "a disk of this host has no directory of a worker",
        "sync-dishonest": "a sync is quicker than any device can be",
        "sync-slow": "a sync takes so long that masters or seals wait for it",
        "room": "less is free than what the worker keeps back, or the capacity is more than there is",
        "inodes": "hardly any files can be made there",
    },
    "security": {
        "certificate": "certificate, key or CA cannot be read, do not go together, or are refused by clients",
        "certificate-name": "the certificate lacks a name by which others reach the server",
        "certificate-ends": "the certificate expires soon",
        "key-open": "a key, a secret or a token can be read by others of this machine",
        "token": "the files of HOLDFAST_CA and HOLDFAST_TOKEN_FILE are missing, invalid or expired",
    },
    "masters": {
        "peers": "the list of masters is wrong, or lacks this one",
        "secret": "the masters' secret is missing, short, or readable by others",
        "master-silent": "a master does not answer here",
        "no-leader": "masters answer, and none is the leader",
        "endpoints-few": "fewer masters are named than there are",
        "cluster-differs": "a master or worker belongs to another cluster",
        "settings-differ": "masters, or one and this file, disagree in what must be the same",
        "secret-differs": "masters have different secrets, or the file's server another one than they",
        "security-differs": "[security] is on here and off there",
        "peers-differ": "masters have different lists of masters",
        "clock": "a clock is off",
        "faults": "a server makes faults on purpose",
    },
    "workers": {
        "worker-lost": "the masters call a worker lost",
        "worker-silent": "a worker that is alive for the masters cannot be reached from here",
        "worker-twice": "another live worker has the same name",
        "dfs-differs": "workers and masters have different DFS stores",
        "under-replicated": "committed data has fewer copies than were asked for",
    },
    "versions": {
        "version-differs": "a server runs another Holdfast",
        "protocol-differs": "a server has another protocol, or another format on disk",
        "library-differs": "servers run with different Pythons or libraries",
    },
    "Spark": {
        "spark-manager": "the settings do not name Holdfast's shuffle manager",
        "spark-endpoints": "the settings name no masters, or others",
        "spark-jar": "the plug-in's jar is not there, or not for this Spark",
        "spark-key": "a setting of the plug-in is unknown or has a value that it refuses",
        "spark-security": "the CA or the token of the settings is missing, not readable, or of no use here",
        "spark-conflict": "another setting works against the plug-in",
        "spark-replication": "more copies are asked for than there are hosts",
        "java": "Java is missing or too old",
        "pyspark-python": "Spark's Python workers run another Python, or lack Holdfast where no plug-in shuffles",
    },
}
_KNOWN = frozenset(code for group in CODES.values() for code in group)


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing that is wrong."""

    code: str
    level: ProblemLevel
    #: a setting, a path, an address
    where: str
    what: str
    remedy: str

    def __post_init__(self) -> None:
        assert self.code in _KNOWN, self.code


def problem(code: str, where: str, what: str, remedy: str) -> Symptom:
    """What has to be mended."""
    return Symptom(code, ProblemLevel.PROBLEM, where, what, remedy)


def advice(code: str, where: str, what: str, remedy: str) -> Symptom:
    """What is worth a look."""
    return Symptom(code, ProblemLevel.ADVICE, where, what, remedy)
