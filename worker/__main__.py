"""`python -m holdfast.worker --config FILE`."""

import sys

from holdfast.common.system.versions import lacking
from holdfast.common.version import missing

if __name__ == "__main__":
    if package := lacking("server"):
        sys.stderr.write(f"holdfast: {missing('a worker', package)}\n")
        sys.exit(2)
    from holdfast.worker.main import main

    main()
