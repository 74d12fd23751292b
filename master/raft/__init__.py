"""The masters' replicated log: pysyncobj's Raft, hardened. `node.RaftNode` is the door; raft.md explains it."""
