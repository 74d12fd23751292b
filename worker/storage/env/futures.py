"""What work in threads is handed to and answers with; apart from interfaces.py, because it loads much."""

from concurrent.futures import CancelledError, Executor, Future, wait

__all__ = ["CancelledError", "Executor", "Future", "wait"]
