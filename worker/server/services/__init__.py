"""The services of the data port: what each frame does."""
