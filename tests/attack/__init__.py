"""Attacks on what a server may use: memory, descriptors, processor time and disk, taken by tenants and by strangers.

Each is a function `async def NAME(target: Target, until: Callable[[], bool]) -> Counter[str]` in a module named after
what it attacks; it goes on until `until()` and counts what happened. `run.py` runs them beside an honest client.
"""
