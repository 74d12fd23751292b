"""The command `holdfast`, also as `python -m holdfast.tools`: says what to install where `tools` is missing."""

from __future__ import annotations

import sys

from holdfast.common.system.versions import lacking
from holdfast.common.version import missing


def main() -> None:
    """Run the command line and end the process with its exit status."""
    if package := lacking("tools"):
        sys.stderr.write(f"holdfast: {missing('the command line', package)}\n")
        sys.exit(2)
    from holdfast.tools.cli import main as command_line

    command_line.main()


if __name__ == "__main__":
    main()
