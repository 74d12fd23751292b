"""The command line `holdfast`."""
