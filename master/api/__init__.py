"""The masters' services: RPCs turned into commands and confirmed reads, and answers into replies."""

import os

# gRPC writes a line to standard error for every client without TLS, also where only errors are asked for. It
# reads this as it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
