"""What every service of a master stands on: commands, confirmed reads, leases, and links to workers."""
