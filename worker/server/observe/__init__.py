"""What people, Prometheus and the masters see of a worker."""
