"""What `verify` finds: the types that verify.py and verify_epochs.py share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    DAMAGE = "DAMAGE"
    HARMLESS = "HARMLESS"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. Numbers that do not apply are None; offsets count from the start of the file."""

    severity: Severity
    path: str
    message: str
    region: int | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and what was found."""

    path: str
    #: all files below data/, foreign ones included
    files: int = 0
    sealed_files: int = 0
    log_segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    #: files on the DFS that the index refers to, and how many of these were not looked at
    dfs_files: int = 0
    dfs_epochs: int = 0
    dfs_bytes: int = 0
    dfs_unchecked: int = 0
    #: which DFS it is; "" if no file was ever brought to one
    dfs_url: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)

    def add(self, severity: Severity, path: str, message: str, **where: int | None) -> None:
        """Note a finding."""
        self.findings.append(Finding(severity, path, message, **where))
