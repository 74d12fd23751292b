"""The masters' replicated log: pysyncobj's Raft, hardened. `node.RaftNode` is the door; docs/raft.md explains it."""
