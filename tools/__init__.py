"""Tools for people: the command line, drills, benchmarks and the doctor. Installed with the extra `tools`."""
