"""The masters: what Holdfast knows, replicated through Raft."""
