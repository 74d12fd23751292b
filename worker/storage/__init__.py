"""Files and indexes of a worker's directories; the edge to its disks."""
