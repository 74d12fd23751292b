"""Drills: a cluster of real processes, kills at random moments, and a check of everything that was acknowledged.

Each module has one coroutine that drives the cluster and fills a Report. Random choices and moments come from one
seeded generator; the moments are part of a drill, nothing is synchronised by them. Every wait has a deadline.
"""
