"""The DFS tier: sealed files in a store that workers and masters share. store.py is what the roles use."""
