"""`python -m holdfast.worker --config FILE`."""

from holdfast.worker.main import main

main()
