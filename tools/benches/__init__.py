"""Benchmarks of `holdfast bench`: each module measures one thing against a local cluster and returns figures.

What loads the servers runs in processes of its own, so that a server's CPU seconds (from /proc) are the server's alone.
"""
