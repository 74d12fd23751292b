"""What the leader controls: seals, moves, drains, quotas, and what is left on the DFS."""
