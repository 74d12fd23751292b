"""The base of every service of a master: commands, confirmed reads, leases, and links to workers."""
