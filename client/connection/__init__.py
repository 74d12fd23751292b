"""What connects a process to a cluster: the event loop, addresses of workers, control calls."""
