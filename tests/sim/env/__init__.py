"""A machine's disks, indexes, threads and clock, simulated behind the door of worker/storage/env. Names no data."""
