"""What people and Prometheus see of a master."""
