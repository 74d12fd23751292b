"""What drills share: clusters and networks to hurt, traffic, ledgers, and the report."""
