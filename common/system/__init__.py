"""This process and this machine: files, locks, logs, descriptors, memory, tasks."""
