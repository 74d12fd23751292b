"""Gives a server the boot id of its machine, and a small log: Python imports this at its start where this folder is on
its path.

A machine is named by the number at the end of the server's name. Its boot id is a file below HOLDFAST_TEST_BOOTS,
mounted over the kernel's in a mount namespace of the server's own. Mistakes come from tests/drills.
"""

import contextlib
import ctypes
import os
import runpy
import sys
from pathlib import Path

CLONE_NEWNS, MS_BIND, MS_REC, MS_SLAVE = 0x20000, 4096, 16384, 1 << 19
ROLES = {"holdfast.master", "holdfast.worker"}

if (boots := os.environ.get("HOLDFAST_TEST_BOOTS")) and ROLES & set(sys.orig_argv):
    libc = ctypes.CDLL(None, use_errno=True)
    machine = Path(sys.orig_argv[-1]).stem[1:]

    def mount(source: bytes, target: bytes, flags: int) -> None:
        """mount(2)"""
        if libc.mount(source, target, None, flags, None):
            raise OSError(ctypes.get_errno(), f"cannot mount {target!r}")

    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    mount(b"none", b"/", MS_REC | MS_SLAVE)
    mount(os.fsencode(f"{boots}/{machine}"), b"/proc/sys/kernel/random/boot_id", MS_BIND)
    if "holdfast.worker" in sys.orig_argv:
        with contextlib.suppress(ImportError):
            from holdfast.worker.storage.engine import directory

            directory.SEGMENT_BYTES_LEAST, directory.SEGMENT_SHARE = 1 << 20, 1 << 10
    if os.environ.get("HOLDFAST_TEST_MISTAKE"):
        runpy.run_path(str(Path(__file__).parents[2] / "drills" / "plant" / "sitecustomize.py"))
