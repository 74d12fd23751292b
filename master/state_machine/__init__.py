"""The replicated state as Raft sees it: bytes of commands in, answers out, snapshots as bytes."""
