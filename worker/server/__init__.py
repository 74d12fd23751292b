"""The edges of a worker: sockets, clocks and threads around the decisions of worker/core. No policy here."""
