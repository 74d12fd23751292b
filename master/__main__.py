"""`python -m holdfast.master --config FILE`."""

import sys

from holdfast.master.main import main

if __name__ == "__main__":
    sys.exit(main())
