"""What the machine that tests run on may be, and no test can change: small, a container, with files in memory."""

#: What the doctor may say of any set-up here, sound or not.
OF_THE_MACHINE = frozenset(
    {"file-system", "tier", "inodes", "memory", "nofile", "room", "sync-dishonest", "sync-slow", "not-mounted"}
)
