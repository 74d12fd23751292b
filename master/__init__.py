"""The masters: the state of the cluster, replicated through Raft."""
