"""`python -m holdfast.master --config FILE`."""

import sys

from holdfast.common.system.versions import lacking
from holdfast.common.version import missing

if __name__ == "__main__":
    if package := lacking("server"):
        sys.stderr.write(f"holdfast: {missing('a master', package)}\n")
        sys.exit(2)
    from holdfast.master.main import main

    sys.exit(main())
